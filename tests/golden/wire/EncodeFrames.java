// Encodes messages with Kafka's own classes: the golden frames come from here.
// Reads lines "Class version JSON" and writes lines "Class version hex". Run by generate.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class EncodeFrames {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
    };

    static Class<?> converter(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(place + name + suffix + "JsonConverter");
                } catch (ClassNotFoundException ignored) {
                    // The next place.
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            JsonNode json = mapper.readTree(parts[2]);
            Message message = (Message) converter(parts[0])
                .getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            System.out.println(parts[0] + " " + parts[1] + " " + HexFormat.of().formatHex(buffer.array()));
        }
    }
}
