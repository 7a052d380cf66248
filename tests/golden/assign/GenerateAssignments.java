// Writes assignments.json: what Kafka's own assignors make of random groups.
//
//   java -cp '.cache/kafka/libs/*' tests/golden/assign/GenerateAssignments.java > tests/golden/assign/assignments.json

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

public class GenerateAssignments {
    static final Random random = new Random(20260101);

    public static void main(String[] arguments) throws Exception {
        List<Object> groups = new ArrayList<>();
        for (int i = 0; i < 120; i++) groups.add(group(i % 3 == 1, i % 4 != 3, i % 5 == 0));
        System.out.println(new ObjectMapper().writeValueAsString(groups));
    }

    static Map<String, Object> group(boolean racks, boolean equal, boolean instances) {
        Map<String, Object> out = new LinkedHashMap<>();
        List<Node> nodes = new ArrayList<>();
        for (int n = 0; n < 3; n++) nodes.add(new Node(n, "h", 9092, racks ? "r" + n : null));
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Integer> counts = new TreeMap<>();
        Map<String, List<List<String>>> replicaRacks = new TreeMap<>();
        int topics = 1 + random.nextInt(5), fixed = random.nextBoolean() ? 1 + random.nextInt(9) : 0;
        for (int t = 0; t < topics; t++) {
            int count = fixed > 0 ? fixed : random.nextInt(12);
            String topic = "t" + t;
            counts.put(topic, count);
            List<List<String>> racksOfTopic = new ArrayList<>();
            for (int p = 0; p < count; p++) {
                List<Node> shuffled = new ArrayList<>(nodes);
                Collections.shuffle(shuffled, random);
                Node[] replicas = shuffled.subList(0, 1 + random.nextInt(2)).toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic, p, replicas[0], replicas, replicas));
                List<String> r = new ArrayList<>();
                for (Node node : replicas) if (node.rack() != null) r.add(node.rack());
                racksOfTopic.add(r);
            }
            replicaRacks.put(topic, racksOfTopic);
        }
        Cluster cluster = new Cluster("c", nodes, partitions, Set.of(), Set.of());
        Map<String, List<String>> subscriptions = new TreeMap<>();
        Map<String, String> instanceIds = new TreeMap<>(), memberRacks = new TreeMap<>();
        int members = 1 + random.nextInt(7);
        for (int m = 0; m < members; m++) {
            String id = "m" + random.nextInt(1000) + "-" + m;
            List<String> of = new ArrayList<>();
            for (String topic : counts.keySet()) if (equal || random.nextBoolean()) of.add(topic);
            if (random.nextInt(20) == 0) of.add("missing");
            subscriptions.put(id, of);
            if (instances && random.nextInt(4) > 0) instanceIds.put(id, "i" + (members - m));
            if (racks) memberRacks.put(id, "r" + random.nextInt(3));
        }
        out.put("partitions", counts);
        out.put("racks", racks ? replicaRacks : Map.of());
        out.put("subscriptions", subscriptions);
        out.put("instances", instanceIds);
        out.put("member_racks", memberRacks);
        Map<String, Object> assigned = new LinkedHashMap<>();
        for (ConsumerPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor(),
                new StickyAssignor(), new CooperativeStickyAssignor())) {
            Map<String, Subscription> first = new HashMap<>();
            for (String id : subscriptions.keySet())
                first.put(id, subscription(assignor, subscriptions.get(id), List.of(), -1, memberRacks.get(id), instanceIds.get(id)));
            Map<String, Assignment> result = assignor.assign(cluster, new GroupSubscription(first)).groupAssignment();
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("first", plain(result));
            if (assignor instanceof StickyAssignor || assignor instanceof CooperativeStickyAssignor) {
                // One member leaves, one joins: how many partitions leave an owner that stays?
                Map<String, Subscription> second = new HashMap<>();
                Map<String, String> bytes = new TreeMap<>();
                String gone = subscriptions.keySet().iterator().next();
                for (String id : subscriptions.keySet()) {
                    if (id.equals(gone)) continue;
                    ConsumerPartitionAssignor own = assignor instanceof StickyAssignor ? new StickyAssignor() : new CooperativeStickyAssignor();
                    own.onAssignment(result.get(id), new ConsumerGroupMetadata("g", 5, id, Optional.empty()));
                    List<TopicPartition> owned = assignor instanceof StickyAssignor ? List.of() : result.get(id).partitions();
                    Subscription s = subscription(own, subscriptions.get(id), owned, 5, memberRacks.get(id), instanceIds.get(id));
                    second.put(id, s);
                    bytes.put(id, HexFormat.of().formatHex(ConsumerProtocol.serializeSubscription(s).array()));
                }
                second.put("new", subscription(assignor instanceof StickyAssignor ? new StickyAssignor() : new CooperativeStickyAssignor(),
                    subscriptions.get(gone), List.of(), -1, null, null));
                row.put("gone", gone);
                row.put("subscription_bytes", bytes);
                row.put("second", plain(assignor.assign(cluster, new GroupSubscription(second)).groupAssignment()));
            }
            assigned.put(assignor.name(), row);
        }
        out.put("assigned", assigned);
        return out;
    }

    static Subscription subscription(ConsumerPartitionAssignor assignor, List<String> topics, List<TopicPartition> owned,
            int generation, String rack, String instance) {
        ByteBuffer data = assignor.subscriptionUserData(new TreeSet<>(topics));
        Subscription s = new Subscription(topics, data, owned, generation, Optional.ofNullable(rack));
        s.setGroupInstanceId(Optional.ofNullable(instance));
        return s;
    }

    static Map<String, Object> plain(Map<String, Assignment> result) {
        Map<String, Object> plain = new TreeMap<>();
        result.forEach((id, assignment) -> {
            List<Object> partitions = new ArrayList<>();
            for (TopicPartition tp : assignment.partitions()) partitions.add(List.of(tp.topic(), tp.partition()));
            plain.put(id, partitions);
        });
        return plain;
    }
}
