// Writes the golden batches beside this file with Apache Kafka's own classes:
//   java -cp '.cache/kafka/libs/*' tests/golden/records/GenerateRecords.java tests/golden/records
// What is in them is repeated in tests/unit/records/test_golden.py.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;

public class GenerateRecords {
    static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] large() {
        byte[] value = new byte[40_000];
        for (int i = 0; i < value.length; i++) value[i] = (byte) ((i / 50) % 251);
        return value;
    }

    static void append(MemoryRecordsBuilder builder, byte magic, long offset, long time, byte[] key, byte[] value) {
        Header[] headers = magic < 2 || offset % 2 == 0 ? new Header[0] : new Header[] {
            new RecordHeader("h", utf8("v")), new RecordHeader("größe", null)};
        builder.appendWithOffset(offset, magic == 0 ? -1L : time, key, value, headers);
    }

    static ByteBuffer build(byte magic, CompressionType codec, TimestampType type) {
        MemoryRecordsBuilder builder = magic < 2
            ? MemoryRecords.builder(ByteBuffer.allocate(256), magic, Compression.of(codec).build(), type, 100L, 1_700_000_009_000L)
            : MemoryRecords.builder(ByteBuffer.allocate(256), magic, Compression.of(codec).build(), type, 100L,
                1_700_000_009_000L, 4000L, (short) 7, 55, false, 3);
        append(builder, magic, 100, 1_700_000_000_000L, utf8("key"), utf8("value"));
        append(builder, magic, 101, 1_700_000_000_500L, null, utf8("keyless"));
        append(builder, magic, 102, 1_700_000_000_200L, utf8("tombstone"), null);
        append(builder, magic, 105, 1_700_000_000_900L, utf8(""), utf8(""));   // 103, 104 compacted away
        append(builder, magic, 106, 1_700_000_000_100L, utf8("large"), large());
        return builder.build().buffer();
    }

    static void write(Path directory, String name, ByteBuffer buffer) throws Exception {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        Files.write(directory.resolve(name + ".bin"), bytes);
    }

    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                if (magic < 2 && codec == CompressionType.ZSTD) continue;
                write(directory, "v" + magic + "-" + codec.name + "-create",
                    build(magic, codec, TimestampType.CREATE_TIME));
                if (magic > 0 && (codec == CompressionType.NONE || codec == CompressionType.GZIP))
                    write(directory, "v" + magic + "-" + codec.name + "-append",
                        build(magic, codec, TimestampType.LOG_APPEND_TIME));
            }
        }
        write(directory, "marker-commit", MemoryRecords.withEndTransactionMarker(
            500L, 1_700_000_000_000L, 3, 4000L, (short) 7, new EndTransactionMarker(ControlRecordType.COMMIT, 12)).buffer());
        write(directory, "marker-abort", MemoryRecords.withEndTransactionMarker(
            500L, 1_700_000_000_000L, 3, 4000L, (short) 7, new EndTransactionMarker(ControlRecordType.ABORT, 12)).buffer());
    }
}
