// Writes the golden files beside this file with Apache Kafka's own classes: quorum-state files,
// control batches and metadata snapshots.
//   java -cp '.cache/kafka/libs/*' tests/golden/quorum/GenerateQuorum.java tests/golden/quorum
// What is in them is repeated in quorum_samples.py and tests of tests/unit/broker/metadata.

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.*;
import org.apache.kafka.server.common.*;
import org.apache.kafka.snapshot.*;

public class GenerateQuorum {
    static final long NOW = 1_700_000_000_123L;
    static final Uuid FIRST = new Uuid(0x1111111111114111L, 0x8111111111111111L);
    static final Uuid SECOND = new Uuid(0x2222222222224222L, 0x8222222222222222L);

    static class Fixed implements Time {
        public long milliseconds() { return NOW; }
        public long nanoseconds() { return NOW * 1_000_000; }
        public void sleep(long ms) { }
        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) { }
        public Timer timer(long timeoutMs) { return new Time() {
            public long milliseconds() { return NOW; }
            public long nanoseconds() { return NOW * 1_000_000; }
            public void sleep(long ms) { }
            public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) { }
        }.timer(timeoutMs); }
    }

    static void states(Path out) throws Exception {
        Set<Integer> one = Set.of(1), three = new TreeSet<>(List.of(1, 2, 3));
        Map<String, ElectionState> states = new TreeMap<>();
        states.put("unknown", ElectionState.withUnknownLeader(4, one));
        states.put("leader", ElectionState.withElectedLeader(7, 1, Optional.empty(), three));
        states.put("voted", ElectionState.withVotedCandidate(2147483647, ReplicaKey.of(2, SECOND), three));
        states.put("undirected", ElectionState.withVotedCandidate(3, ReplicaKey.of(2, ReplicaKey.NO_DIRECTORY_ID), three));
        states.put("both", ElectionState.withElectedLeader(9, 3, Optional.of(ReplicaKey.of(3, FIRST)), Set.of()));
        for (var entry : states.entrySet()) {
            for (KRaftVersion version : List.of(KRaftVersion.KRAFT_VERSION_0, KRaftVersion.KRAFT_VERSION_1)) {
                Path file = out.resolve("quorum-state-" + entry.getKey() + "-v" + version.quorumStateVersion() + ".json");
                new FileQuorumStateStore(file.toFile()).writeElectionState(entry.getValue(), version);
            }
        }
    }

    static VoterSet voters() {
        Map<Integer, VoterSet.VoterNode> nodes = new TreeMap<>();
        ListenerName name = ListenerName.normalised("CONTROLLER");
        nodes.put(1, VoterSet.VoterNode.of(ReplicaKey.of(1, FIRST),
            Endpoints.fromInetSocketAddresses(Map.of(name, InetSocketAddress.createUnresolved("localhost", 9093))),
            new SupportedVersionRange((short) 0, (short) 1)));
        nodes.put(2, VoterSet.VoterNode.of(ReplicaKey.of(2, SECOND),
            Endpoints.fromInetSocketAddresses(Map.of(name, InetSocketAddress.createUnresolved("größe.example", 65535))),
            new SupportedVersionRange((short) 1, (short) 1)));
        return VoterSet.fromMap(nodes);
    }

    static ApiMessageAndVersion feature(String name, int level) {
        return new ApiMessageAndVersion(new FeatureLevelRecord().setName(name).setFeatureLevel((short) level), (short) 0);
    }

    static ApiMessageAndVersion topic(String name, Uuid id) {
        return new ApiMessageAndVersion(new TopicRecord().setName(name).setTopicId(id), (short) 0);
    }

    static void snapshot(Path out, String name, long offset, int epoch, KRaftVersion version,
            Optional<VoterSet> voters, List<List<ApiMessageAndVersion>> appends) throws Exception {
        OffsetAndEpoch id = new OffsetAndEpoch(offset, epoch);
        RecordsSnapshotWriter<ApiMessageAndVersion> writer = new RecordsSnapshotWriter.Builder()
            .setLastContainedLogTimestamp(NOW - 1000).setTime(new Fixed())
            .setMaxBatchSizeBytes(8 * 1024 * 1024)
            .setRawSnapshotWriter(FileRawSnapshotWriter.create(out, id))
            .setKraftVersion(version).setVoterSet(voters)
            .build(new MetadataRecordSerde());
        for (List<ApiMessageAndVersion> records : appends) writer.append(records);
        writer.freeze();
        writer.close();
        Path made = Snapshots.snapshotPath(out, id);
        made.toFile().setWritable(true);
        Files.move(made, out.resolve(name + ".checkpoint"), StandardCopyOption.REPLACE_EXISTING);
    }

    interface Append { void to(MemoryRecordsBuilder builder); }

    static byte[] batch(Append append) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1024), (byte) 2,
            Compression.NONE, TimestampType.CREATE_TIME, 40L, NOW, -1L, (short) -1, -1, false, true, 5, 1024);
        append.to(builder);
        return bytes(builder.build().buffer());
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    static LeaderChangeMessage.Voter voter(int id, Uuid directory) {
        return new LeaderChangeMessage.Voter().setVoterId(id).setVoterDirectoryId(directory);
    }

    static void controls(Path out) throws Exception {
        Map<String, String> lines = new LinkedHashMap<>();
        HexFormat hex = HexFormat.of();
        Uuid none = Uuid.ZERO_UUID;
        LeaderChangeMessage leader = new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1)
            .setVoters(List.of(voter(1, none), voter(2, none))).setGrantingVoters(List.of(voter(1, none)));
        lines.put("leader-change", hex.formatHex(batch(b -> b.appendLeaderChangeMessage(NOW, leader))));
        LeaderChangeMessage newer = new LeaderChangeMessage().setVersion((short) 1).setLeaderId(2)
            .setVoters(List.of(voter(1, FIRST), voter(2, SECOND))).setGrantingVoters(List.of(voter(2, SECOND)));
        lines.put("leader-change-1-value", hex.formatHex(bytes(MessageUtil.toByteBufferAccessor(newer, (short) 1).buffer())));
        lines.put("snapshot-header", hex.formatHex(batch(b -> b.appendSnapshotHeaderMessage(NOW,
            new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(NOW - 1000)))));
        lines.put("snapshot-footer", hex.formatHex(batch(b -> b.appendSnapshotFooterMessage(NOW,
            new SnapshotFooterRecord().setVersion((short) 0)))));
        lines.put("kraft-version", hex.formatHex(batch(b -> b.appendKRaftVersionMessage(NOW,
            new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) 1)))));
        lines.put("voters", hex.formatHex(batch(b -> b.appendVotersMessage(NOW, voters().toVotersRecord((short) 0)))));
        StringBuilder text = new StringBuilder();
        lines.forEach((name, value) -> text.append(name).append(' ').append(value).append('\n'));
        Files.writeString(out.resolve("control.txt"), text.toString());
    }

    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[0]).toAbsolutePath();
        states(out);
        controls(out);
        List<ApiMessageAndVersion> features = List.of(feature("metadata.version", 29), feature("group.version", 1));
        snapshot(out, "static", 77, 3, KRaftVersion.KRAFT_VERSION_0, Optional.empty(),
            List.of(features, List.of(topic("orders", FIRST))));
        snapshot(out, "dynamic", 1295, 2, KRaftVersion.KRAFT_VERSION_1, Optional.of(voters()),
            List.of(features, List.of(topic("orders", FIRST), topic("größe", SECOND))));
        snapshot(out, "voters-only", 0, 0, KRaftVersion.KRAFT_VERSION_1, Optional.of(voters()), List.of());
        snapshot(out, "empty", 5, 1, KRaftVersion.KRAFT_VERSION_0, Optional.empty(), List.of());
    }
}
