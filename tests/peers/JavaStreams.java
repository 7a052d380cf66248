// A Kafka Streams application with exactly_once_v2:
//   java -cp '.cache/kafka/libs/*:.cache/kafka/streams/*' tests/peers/JavaStreams.java
//       HOST:PORT APPLICATION STATE_DIRECTORY INPUT OUTPUT TOTALS
// It copies INPUT to OUTPUT, and writes to TOTALS how many records there were of the first character
// of their key. It prints each change of its state, and ends when its standard input does.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;

public class JavaStreams {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", 2);
        settings.put("replication.factor", 1);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("consumer.session.timeout.ms", 6000);
        settings.put("consumer.heartbeat.interval.ms", 500);
        settings.put("consumer.max.poll.records", 100);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(arguments[3]);
        input.to(arguments[4]);
        input.groupBy((key, value) -> key.substring(0, 1))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[5]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((state, before) -> System.out.println(state));
        streams.start();
        while (System.in.read() >= 0) {
        }
        streams.close();
    }
}
