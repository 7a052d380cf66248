// Writes server_assignments.json: what the assignors of Kafka's group coordinator make of random groups.
//
//   java -cp '.cache/kafka/libs/*' tests/golden/assign/GenerateServerAssignments.java > tests/golden/assign/server_assignments.json

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class GenerateServerAssignments {
    static final Random random = new Random(20260102);

    public static void main(String[] arguments) throws Exception {
        List<Object> groups = new ArrayList<>();
        for (int i = 0; i < 100; i++) groups.add(group(i % 2 == 0, i % 5 == 0));
        System.out.println(new ObjectMapper().writeValueAsString(groups));
    }

    static Map<String, Object> group(boolean equal, boolean instances) {
        Map<Uuid, Integer> counts = new LinkedHashMap<>();
        int topics = 1 + random.nextInt(5), fixed = random.nextInt(3) == 0 ? 1 + random.nextInt(9) : 0;
        for (int t = 0; t < topics; t++) counts.put(new Uuid(0, t + 1), fixed > 0 ? fixed : 1 + random.nextInt(12));
        Map<String, Set<Uuid>> subscriptions = new TreeMap<>();
        Map<String, String> instanceIds = new TreeMap<>();
        int members = 1 + random.nextInt(7);
        for (int m = 0; m < members; m++) {
            String id = "m" + random.nextInt(1000) + "-" + m;
            Set<Uuid> of = new TreeSet<>();
            for (Uuid topic : counts.keySet()) if (equal || random.nextBoolean()) of.add(topic);
            subscriptions.put(id, of);
            if (instances && random.nextInt(4) > 0) instanceIds.put(id, "i" + (members - m));
        }
        Map<String, Object> out = new LinkedHashMap<>();
        Map<String, Integer> topicCounts = new TreeMap<>();
        counts.forEach((topic, count) -> topicCounts.put(name(topic), count));
        out.put("partitions", topicCounts);
        out.put("subscriptions", names(subscriptions));
        out.put("instances", instanceIds);
        Map<String, MemberAssignment> nothing = Map.of();
        out.put("range", plain(assign(new RangeAssignor(), counts, subscriptions, instanceIds, nothing)));
        Map<String, MemberAssignment> first = assign(new UniformAssignor(), counts, subscriptions, instanceIds, nothing);
        // One member leaves, one joins: how many partitions leave an owner that stays?
        String gone = subscriptions.keySet().iterator().next();
        Map<String, Set<Uuid>> changed = new TreeMap<>(subscriptions);
        changed.put("new", changed.remove(gone));
        out.put("gone", gone);
        out.put("uniform", plain(first));
        out.put("uniform_again", plain(assign(new UniformAssignor(), counts, changed, instanceIds, first)));
        return out;
    }

    static Map<String, MemberAssignment> assign(PartitionAssignor assignor, Map<Uuid, Integer> counts,
            Map<String, Set<Uuid>> subscriptions, Map<String, String> instanceIds, Map<String, MemberAssignment> before) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        subscriptions.forEach((id, topics) -> {
            Map<Uuid, Set<Integer>> had = new HashMap<>();
            if (before.containsKey(id)) before.get(id).partitions().forEach((topic, numbers) -> had.put(topic, new HashSet<>(numbers)));
            had.forEach((topic, numbers) -> numbers.forEach(n -> inverted.computeIfAbsent(topic, t -> new HashMap<>()).put(n, id)));
            members.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(),
                Optional.ofNullable(instanceIds.get(id)), topics, new Assignment(had)));
        });
        boolean equal = new HashSet<>(subscriptions.values()).size() == 1;
        return assignor.assign(
            new GroupSpecImpl(members, equal ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, inverted),
            new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) { return counts.getOrDefault(topic, -1); }
                public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
            }).members();
    }

    static String name(Uuid topic) { return "t" + (topic.getLeastSignificantBits() - 1); }

    static Map<String, List<String>> names(Map<String, Set<Uuid>> subscriptions) {
        Map<String, List<String>> names = new TreeMap<>();
        subscriptions.forEach((id, topics) -> names.put(id, topics.stream().map(GenerateServerAssignments::name).sorted().toList()));
        return names;
    }

    static Map<String, Object> plain(Map<String, MemberAssignment> members) {
        Map<String, Object> plain = new TreeMap<>();
        members.forEach((id, assignment) -> {
            Map<String, Object> topics = new TreeMap<>();
            assignment.partitions().forEach((topic, numbers) -> { if (!numbers.isEmpty()) topics.put(name(topic), new TreeSet<>(numbers)); });
            plain.put(id, topics);
        });
        return plain;
    }
}
