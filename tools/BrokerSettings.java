import java.util.Locale;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints name, type and default of every broker setting of Kafka, separated by tabs. */
public class BrokerSettings {
    public static void main(String[] args) {
        new TreeMap<>(kafka.server.KafkaConfig.configDef().configKeys()).forEach((name, key) -> {
            String type = key.type.name().toLowerCase(Locale.ROOT);
            System.out.println(name + "\t" + type);
        });
    }
}
