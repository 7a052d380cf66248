// Apache Kafka's own log cleaner, once over one partition's directory, without a broker:
//   java -cp '.cache/kafka/libs/*' tests/peers/JavaCleaner.java DIR[:DIR...] FIRST_DIRTY NOW_MS MAP_BYTES [NAME=VALUE ...]
// where DIR is a partition's (several are cleaned one after the other), FIRST_DIRTY an offset,
// NAME=VALUE a topic setting. Everything before the newest segment is cleaned. Prints
// "seconds=S end=OFFSET" when it is done with one.

import java.io.File;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class JavaCleaner {
    public static void main(String[] arguments) throws Exception {
        long firstDirty = Long.parseLong(arguments[1]);
        long now = Long.parseLong(arguments[2]);
        int mapBytes = Integer.parseInt(arguments[3]);
        Properties settings = new Properties();
        settings.put("cleanup.policy", "compact");
        for (int i = 4; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (String directory : arguments[0].split(File.pathSeparator))
            clean(new File(directory), settings, scheduler, firstDirty, now, mapBytes);
        scheduler.shutdown();
        System.exit(0);
    }

    private static void clean(
            File directory, Properties settings, KafkaScheduler scheduler,
            long firstDirty, long now, int mapBytes) throws Exception {
        UnifiedLog log = UnifiedLog.create(
            directory, new LogConfig(settings), 0L, Long.MAX_VALUE, scheduler, new BrokerTopicStats(),
            Time.SYSTEM, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Throttler throttler =
            new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(mapBytes), 524_288 / 2, Integer.MAX_VALUE, 0.9, throttler,
            Time.SYSTEM, partition -> { });
        long began = System.nanoTime();
        long end = cleaner.doClean(
            new LogToClean(log, firstDirty, log.activeSegment().baseOffset(), false), now).getKey();
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.println("seconds=" + seconds + " end=" + end);
        log.close();
    }
}
