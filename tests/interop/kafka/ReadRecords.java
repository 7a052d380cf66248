// Prints the records of a file of batches as Apache Kafka's own classes read them, one a line:
//   java -cp '.cache/kafka/libs/*' tests/interop/kafka/ReadRecords.java FILE...

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;

public class ReadRecords {
    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    public static void main(String[] args) throws Exception {
        for (String name : args) {
            System.out.println("file " + Path.of(name).getFileName());
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(name))));
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                for (var record : batch) {
                    record.ensureValid();
                    StringBuilder line = new StringBuilder();
                    line.append(record.offset()).append(' ').append(record.timestamp()).append(' ')
                        .append(hex(record.key())).append(' ').append(hex(record.value()));
                    for (Header header : record.headers())
                        line.append(' ').append(header.key()).append('=')
                            .append(header.value() == null ? "null" : HexFormat.of().formatHex(header.value()));
                    System.out.println(line);
                }
            }
        }
    }
}
