import java.util.Locale;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints Kafka's broker settings, one per line: name and type, separated by a tab. */
public class BrokerSettings {
    public static void main(String[] args) {
        new TreeMap<>(kafka.server.KafkaConfig.configDef().configKeys()).forEach((name, key) -> {
            String type = key.type.name().toLowerCase(Locale.ROOT);
            System.out.println(name + "\t" + type);
        });
    }
}
