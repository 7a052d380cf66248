import java.util.Properties;
import java.util.Scanner;
import kafka.server.KafkaConfig;

/** Says of each line of settings (name=value, separated by tabs) whether Kafka's broker takes it. */
public class JavaBrokerConfig {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            Properties properties = new Properties();
            for (String setting : lines.nextLine().split("\t")) {
                int equals = setting.indexOf('=');
                properties.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
            }
            try {
                new KafkaConfig(properties, false);
                System.out.println("ACCEPT ");
            } catch (RuntimeException error) {
                System.out.println("REFUSE " + error.getMessage().lines().findFirst().orElse(""));
            }
        }
    }
}
