// Transactions of Java's own producer:
//   java -cp '.cache/kafka/libs/*' tests/peers/JavaTransactions.java HOST:PORT TOPIC OPEN
// Into partition 0 of TOPIC go five transactions of two producers, which take turns; every second
// one is aborted. Into partition 0 of OPEN goes one record outside of any, then a transaction that
// nobody ends.

import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class JavaTransactions {
    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        KafkaProducer<String, String> producer = new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", id,
                "transaction.timeout.ms", 600000,
                "linger.ms", 0),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], open = args[2];
        KafkaProducer<String, String> one = producer(bootstrap, "one");
        KafkaProducer<String, String> other = producer(bootstrap, "other");
        for (int number = 0; number < 5; number++) {
            one.beginTransaction();
            other.beginTransaction();
            for (int record = 0; record < 4; record++) {
                String value = number + "." + record;
                one.send(new ProducerRecord<>(topic, 0, "one", value)).get();
                other.send(new ProducerRecord<>(topic, 0, "other", value)).get();
            }
            if (number % 2 == 0) {
                one.commitTransaction();
                other.abortTransaction();
            } else {
                one.abortTransaction();
                other.commitTransaction();
            }
        }
        one.close();
        other.close();
        try (KafkaProducer<String, String> plain = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap),
                new StringSerializer(), new StringSerializer())) {
            plain.send(new ProducerRecord<>(open, 0, "before", "1")).get();
        }
        KafkaProducer<String, String> lost = producer(bootstrap, "lost");
        lost.beginTransaction();
        lost.send(new ProducerRecord<>(open, 0, "unfinished", "2")).get();
        Runtime.getRuntime().halt(0);
    }
}
