// Transactions of Java's producer, for benchmarks/contenders/transactions.py, which says what it
// prints. Arguments: HOST:PORT TOPIC ID RECORDS-A-TRANSACTION TRANSACTIONS TRANSACTIONS-BEFORE
// LINGER-MS VALUE-BYTES BATCH-BYTES

import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaTransactions {
    static final int KEYS = 10_000;

    static long cpuNanoseconds() {
        return ((com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    public static void main(String[] arguments) {
        String topic = arguments[1];
        int size = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        int before = Integer.parseInt(arguments[5]);
        byte[] value = new byte[Integer.parseInt(arguments[7])];
        Arrays.fill(value, (byte) 'v');
        byte[][] keys = new byte[KEYS][];
        for (int index = 0; index < KEYS; index++) {
            keys[index] = String.format("key-%06d", index).getBytes(StandardCharsets.UTF_8);
        }
        long[] commits = new long[count];
        long started = 0, cpu = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                Map.of(
                    "bootstrap.servers", arguments[0],
                    "transactional.id", arguments[2],
                    "linger.ms", arguments[6],
                    "batch.size", arguments[8]),
                new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int number = -before; number < count; number++) {
                if (number == 0) {
                    cpu = cpuNanoseconds();
                    started = System.nanoTime();
                }
                producer.beginTransaction();
                for (int index = 0; index < size; index++) {
                    producer.send(new ProducerRecord<>(topic, keys[index % KEYS], value));
                }
                long began = System.nanoTime();
                producer.commitTransaction();
                if (number >= 0) {
                    commits[number] = System.nanoTime() - began;
                }
            }
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        Arrays.sort(commits);
        System.out.printf(
            "{\"records\": %d, \"seconds\": %f, \"cpu_seconds\": %f, \"commits\": %d, \"commit_seconds\": %f}%n",
            (long) size * count, seconds, (cpuNanoseconds() - cpu) / 1e9, count,
            commits[count / 2] / 1e9);
    }
}
