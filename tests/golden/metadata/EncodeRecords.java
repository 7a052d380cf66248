// Encodes metadata records with Kafka's own serde: the golden values come from here.
// Reads lines "Class version JSON" and writes lines of hex. Run by generate.py.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

public class EncodeRecords {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        MetadataRecordSerde serde = MetadataRecordSerde.INSTANCE;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            ApiMessage message = (ApiMessage) Class.forName("org.apache.kafka.common.metadata." + parts[0] + "JsonConverter")
                .getMethod("read", com.fasterxml.jackson.databind.JsonNode.class, short.class)
                .invoke(null, mapper.readTree(parts[2]), version);
            ApiMessageAndVersion record = new ApiMessageAndVersion(message, version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
            serde.write(record, cache, new ByteBufferAccessor(buffer));
            buffer.flip();
            if (!serde.read(new ByteBufferAccessor(buffer.duplicate()), buffer.remaining()).equals(record))
                throw new IllegalStateException("read back as another record: " + line);
            System.out.println(HexFormat.of().formatHex(buffer.array()));
        }
    }
}
