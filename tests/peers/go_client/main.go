// A client of franz-go for the tests: it logs in, writes a record and reads it.
//
// Standard input has one JSON object; see `settings`. Exit code 1 and one line on standard error say
// what failed.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type settings struct {
	Server      string // host:port
	Topic       string // written and read
	Group       string // the consumer's group
	Mechanism   string // a SASL mechanism; empty for none
	User        string
	Password    string
	Token       string // for OAUTHBEARER
	Authority   string // PEM file of the trusted authority; empty without TLS
	Certificate string // PEM file of the client's certificates; may be empty
	Key         string // PEM file of the client's private key
	Seconds     int    // how long to go on writing; 0 for one record
}

func mechanism(s settings) sasl.Mechanism {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: s.Token}.AsMechanism()
}

func run(s settings) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(s.Server),
		kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic(s.Topic),
		kgo.ConsumeTopics(s.Topic),
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if s.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(s)))
	}
	if s.Authority != "" {
		text, err := os.ReadFile(s.Authority)
		if err != nil {
			return err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(text)
		if s.Certificate != "" {
			own, err := tls.LoadX509KeyPair(s.Certificate, s.Key)
			if err != nil {
				return err
			}
			config.Certificates = []tls.Certificate{own}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(15+s.Seconds)*time.Second)
	defer cancel()
	if err := client.Ping(limit); err != nil {
		return err
	}
	ends := time.Now().Add(time.Duration(s.Seconds) * time.Second)
	for written := 0; written == 0 || time.Now().Before(ends); written++ {
		if err := client.ProduceSync(limit, kgo.StringRecord("v")).FirstErr(); err != nil {
			return err
		}
	}
	fetched := client.PollFetches(limit)
	if err := fetched.Err(); err != nil {
		return err
	}
	if value := string(fetched.Records()[0].Value); value != "v" {
		return fmt.Errorf("read %q", value)
	}
	return nil
}

func main() {
	var s settings
	err := json.NewDecoder(os.Stdin).Decode(&s)
	if err == nil {
		err = run(s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
