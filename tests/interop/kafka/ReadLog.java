// Opens a partition's log with Apache Kafka's own classes and says what they make of it:
//   java -cp '.cache/kafka/libs/*' ReadLog.java DIRECTORY clean|killed SEGMENT_BYTES INDEX_INTERVAL NOW_MS
// killed checks every batch and makes each index anew. The log is closed clean then, as Kafka does.

import java.io.File;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class ReadLog {
    record Fixed(long milliseconds) implements Time {
        public long nanoseconds() { return milliseconds * 1_000_000; }
        public void sleep(long ms) { Time.SYSTEM.sleep(ms); }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) throws InterruptedException {
            Time.SYSTEM.waitObject(object, condition, deadline);
        }
    }

    static void files(File directory, LogDirFailureChannel failures) throws Exception {
        for (String name : new String[] {
            "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"}) {
            File file = new File(directory.getParentFile(), name);
            if (!file.exists()) continue;
            new OffsetCheckpointFile(file, failures).read()
                .forEach((partition, offset) -> System.out.println(name + " " + partition + " " + offset));
        }
        var clean = new CleanShutdownFileHandler(directory.getParent());
        System.out.println("clean " + clean.exists() + " " + clean.read());
        File metadata = PartitionMetadataFile.newFile(directory);
        if (metadata.exists())
            System.out.println("topic-id " + new PartitionMetadataFile(metadata, failures).read().topicId());
        for (var snapshot : ProducerStateManager.listSnapshotFiles(directory))
            System.out.println("snapshot " + snapshot.offset + " " + ProducerStateManager.readSnapshot(snapshot.file()).size());
    }

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        var failures = new LogDirFailureChannel(1);
        files(directory, failures);
        var scheduler = new KafkaScheduler(1);
        scheduler.startup();
        var config = new LogConfig(Map.of(
            "segment.bytes", arguments[2], "index.interval.bytes", arguments[3]));
        long began = System.nanoTime();
        UnifiedLog log = UnifiedLog.create(
            directory, config, 0L, 0L, scheduler, new BrokerTopicStats(), new Fixed(Long.parseLong(arguments[4])),
            900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, failures,
            arguments[1].equals("clean"), Optional.empty());
        System.out.println("seconds " + (System.nanoTime() - began) / 1e9);
        log.updateHighWatermark(log.logEndOffset());
        System.out.println("log " + log.logStartOffset() + " " + log.logEndOffset() + " " + log.lastStableOffset());
        for (var segment : log.logSegments()) System.out.println("segment " + segment.baseOffset() + " " + segment.size());
        for (var entry : log.leaderEpochCache().epochEntries())
            System.out.println("epoch " + entry.epoch() + " " + entry.startOffset());
        log.producerStateManager().activeProducers().values().stream()
            .sorted((one, other) -> Long.compare(one.producerId(), other.producerId()))
            .forEach(entry -> System.out.println(
                "producer " + entry.producerId() + " " + entry.producerEpoch() + " " + entry.lastSeq() + " "
                + entry.lastDataOffset() + " " + entry.coordinatorEpoch() + " " + entry.currentTxnFirstOffset().orElse(-1)));
        for (var aborted : log.collectAbortedTransactions(0, log.logEndOffset()))
            System.out.println(
                "aborted " + aborted.producerId() + " " + aborted.firstOffset() + " " + aborted.lastOffset() + " "
                + aborted.lastStableOffset());
        log.close();
        scheduler.shutdown();
    }
}
