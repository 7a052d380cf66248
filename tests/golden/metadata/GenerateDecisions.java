// Writes decisions.json: what Kafka's controller decides about features, settings of brokers, and
// replicas that leave.
//
//   java -cp '.cache/kafka/libs/*' tests/golden/metadata/GenerateDecisions.java > tests/golden/metadata/decisions.json

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.*;
import java.util.*;
import java.util.Map.Entry;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.controller.*;
import org.apache.kafka.metadata.*;
import org.apache.kafka.server.common.*;
import org.apache.kafka.server.config.ConfigSynonym;

public class GenerateDecisions {
    static final String MV = "metadata.version", GROUP = "group.version", KRAFT = "kraft.version";
    static final String ELR = "eligible.leader.replicas.version", MIN = "min.insync.replicas";
    static final int NODE = 3;

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("dynamic_settings", new TreeMap<>(dynamicSettings()));
        out.put("features", features());
        out.put("broker_configs", brokerConfigs());
        out.put("replicas", replicas());
        System.out.println("{");
        int left = out.size();
        for (var entry : out.entrySet()) {
            System.out.print(json(entry.getKey()) + ": ");
            if (entry.getValue() instanceof List<?> list) {
                System.out.println("[");
                for (int i = 0; i < list.size(); i++)
                    System.out.println(json(list.get(i)) + (i < list.size() - 1 ? "," : ""));
                System.out.print("]");
            } else System.out.print(json(entry.getValue()));
            System.out.println(--left > 0 ? "," : "");
        }
        System.out.println("}");
    }

    static String json(Object value) throws Exception {
        return new ObjectMapper().writeValueAsString(value);
    }

    @SuppressWarnings("unchecked")
    static Map<String, String> dynamicSettings() throws Exception {
        Object companion = Class.forName("kafka.server.DynamicBrokerConfig$").getField("MODULE$").get(null);
        return (Map<String, String>) call(companion, "dynamicConfigUpdateModes");
    }

    // --- features

    static List<Object> features() throws Exception {
        List<Object> cases = new ArrayList<>();
        int[] types = {0, 1, 2, 3};
        for (int version : new int[] {7, 14, 22, 23, 25, 29})
            for (int type : types)
                for (int level : new int[] {-1, 0, 6, 7, 13, 14, 22, 23, 24, 25, 26, 29, 30, 31})
                    cases.add(feature(Map.of(MV, version), 0, Map.of(), Map.of(), updates(MV, level, type), false));
        for (Map<String, Integer> known : List.of(Map.of(MV, 22), Map.of(MV, 25, GROUP, 1, ELR, 1)))
            for (String name : List.of(GROUP, ELR, KRAFT, "no.such.feature"))
                for (int kraft : new int[] {0, 1})
                    for (int type : types)
                        for (int level : new int[] {-1, 0, 1, 2})
                            if (name.equals(KRAFT) || kraft == 0)
                                if (!name.equals("no.such.feature") || level != 0)
                                    cases.add(feature(known, kraft, Map.of(), Map.of(), updates(name, level, type), false));
        Map<String, Integer> low = Map.of(MV, 22);
        cases.add(feature(low, 0, Map.of(), Map.of(), updates(MV, 23, 1, ELR, 1, 1), false));
        cases.add(feature(low, 0, Map.of(), Map.of(), updates(MV, 23, 1, ELR, 1, 1), true));
        cases.add(feature(low, 0, Map.of(), Map.of(), updates(GROUP, 1, 1), true));
        Map<String, String> one = Map.of(":" + MIN, "2"), other = Map.of("3:" + MIN, "2", "4:" + MIN, "1", "4:log.roll.ms", "5");
        for (Map<String, String> configs : List.of(one, other)) {
            cases.add(feature(Map.of(MV, 25), 0, Map.of(), configs, updates(ELR, 1, 1), false));
            cases.add(feature(Map.of(MV, 25, ELR, 1), 0, Map.of(), configs, updates(ELR, 1, 1), false));
            cases.add(feature(Map.of(MV, 25, ELR, 1), 0, Map.of(), configs, updates(ELR, 0, 2), false));
        }
        Map<String, List<Integer>> peers = new TreeMap<>(Map.of("b4:" + MV, List.of(7, 24), "b4:" + GROUP, List.of(0, 0), "c5:" + MV, List.of(7, 25)));
        for (int version : new int[] {14, 15})
            for (int level : new int[] {22, 24, 25, 26})
                cases.add(feature(Map.of(MV, version), 0, peers, Map.of(), updates(MV, level, 1), false));
        cases.add(feature(Map.of(MV, 24), 0, peers, Map.of(), updates(GROUP, 1, 1), false));
        cases.add(feature(Map.of(MV, 24), 0, peers, Map.of(), updates(ELR, 1, 1), false));
        return cases;
    }

    static List<List<Object>> updates(Object... parts) {
        List<List<Object>> updates = new ArrayList<>();
        for (int i = 0; i < parts.length; i += 3) updates.add(List.of(parts[i], parts[i + 1], parts[i + 2]));
        return updates;
    }

    static FeatureControlManager featureControl(Map<String, Integer> known, int kraft, Map<String, List<Integer>> peers) throws Exception {
        Map<String, VersionRange> own = Map.of(MV, range(7, 29), GROUP, range(0, 1), ELR, range(0, 1), KRAFT, range(0, 1));
        Class<?> accessor = Class.forName("org.apache.kafka.controller.KRaftVersionAccessor");
        Object version = Proxy.newProxyInstance(accessor.getClassLoader(), new Class<?>[] {accessor}, (p, method, arguments) ->
            method.getName().equals("kraftVersion") ? KRaftVersion.fromFeatureLevel((short) kraft) : null);
        ClusterFeatureSupportDescriber describer = new ClusterFeatureSupportDescriber() {
            public Iterator<Entry<Integer, Map<String, VersionRange>>> brokerSupported() { return peers("b"); }
            public Iterator<Entry<Integer, Map<String, VersionRange>>> controllerSupported() { return peers("c"); }
            Iterator<Entry<Integer, Map<String, VersionRange>>> peers(String kind) {
                Map<Integer, Map<String, VersionRange>> found = new TreeMap<>();
                peers.forEach((key, value) -> {
                    if (key.startsWith(kind))
                        found.computeIfAbsent(Integer.parseInt(key.substring(1, 2)), k -> new HashMap<>())
                            .put(key.substring(3), range(value.get(0), value.get(1)));
                });
                return found.entrySet().iterator();
            }
        };
        Object builder = new FeatureControlManager.Builder();
        call(builder, "setQuorumFeatures", new QuorumFeatures(NODE, own, List.of(NODE)));
        call(builder, "setClusterFeatureSupportDescriber", describer);
        call(builder, "setKRaftVersionAccessor", version);
        FeatureControlManager control = (FeatureControlManager) call(builder, "build");
        known.forEach((name, level) -> control.replay(new FeatureLevelRecord().setName(name).setFeatureLevel(level.shortValue())));
        return control;
    }

    static ConfigurationControlManager configControl(FeatureControlManager control, Map<String, String> configs) throws Exception {
        ConfigDef definition = new ConfigDef()
            .define(MIN, ConfigDef.Type.INT, 1, ConfigDef.Importance.HIGH, "")
            .define("log.roll.ms", ConfigDef.Type.LONG, 1, ConfigDef.Importance.HIGH, "")
            .define("log.cleanup.policy", ConfigDef.Type.LIST, "delete", ConfigDef.Importance.HIGH, "");
        KafkaConfigSchema schema = new KafkaConfigSchema(
            Map.of(ConfigResource.Type.BROKER, definition, ConfigResource.Type.TOPIC, definition),
            Map.of(MIN, List.of(new ConfigSynonym(MIN))));
        Class<?> type = Class.forName("org.apache.kafka.controller.ConfigurationControlManager$Builder");
        Constructor<?> make = type.getDeclaredConstructor();
        make.setAccessible(true);
        Object builder = make.newInstance();
        call(builder, "setKafkaConfigSchema", schema);
        call(builder, "setFeatureControl", control);
        call(builder, "setNodeId", NODE);
        ConfigurationControlManager manager = (ConfigurationControlManager) call(builder, "build");
        new TreeMap<>(configs).forEach((key, value) -> manager.replay(new ConfigRecord().setResourceType((byte) 4)
            .setResourceName(key.substring(0, key.indexOf(':'))).setName(key.substring(key.indexOf(':') + 1)).setValue(value)));
        return manager;
    }

    static VersionRange range(int least, int most) {
        return VersionRange.of(least, most);
    }

    static Object feature(Map<String, Integer> known, int kraft, Map<String, List<Integer>> peers, Map<String, String> configs,
            List<List<Object>> updates, boolean validateOnly) throws Exception {
        Map<String, Short> levels = new LinkedHashMap<>();
        Map<String, UpgradeType> types = new LinkedHashMap<>();
        for (List<Object> update : updates) {
            levels.put((String) update.get(0), ((Integer) update.get(1)).shortValue());
            types.put((String) update.get(0), UpgradeType.fromCode((Integer) update.get(2)));
        }
        Object manager = configControl(featureControl(known, kraft, peers), configs);
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("known", new TreeMap<>(known));
        out.put("kraft", kraft);
        out.put("peers", peers);
        out.put("configs", new TreeMap<>(configs));
        out.put("updates", updates);
        out.put("validate_only", validateOnly);
        put(out, call(manager, "updateFeatures", levels, types, validateOnly, 7));
        return out;
    }

    // --- settings of brokers

    static List<Object> brokerConfigs() throws Exception {
        List<Object> cases = new ArrayList<>();
        for (int elr : new int[] {0, 1})
            for (String resource : List.of("", "3"))
                for (Map<String, String> present : List.of(Map.<String, String>of(), Map.of(MIN, "2", "log.roll.ms", "5")))
                    for (List<Object> change : List.<List<Object>>of(
                            List.of(MIN, "SET", "3"), List.of(MIN, "DELETE", ""), List.of("log.roll.ms", "SET", "7"),
                            List.of("log.roll.ms", "DELETE", ""), List.of("log.cleanup.policy", "APPEND", "compact"),
                            List.of("log.cleanup.policy", "SUBTRACT", "delete"), List.of("log.roll.ms", "APPEND", "7")))
                        cases.add(brokerConfig(elr, resource, present, change));
        return cases;
    }

    static Object brokerConfig(int elr, String resource, Map<String, String> present, List<Object> change) throws Exception {
        Map<String, String> configs = new TreeMap<>();
        present.forEach((name, value) -> configs.put(resource + ":" + name, value));
        Object manager = configControl(featureControl(elr == 0 ? Map.of(MV, 25) : Map.of(MV, 25, ELR, elr), 0, Map.of()), configs);
        Map<String, Entry<OpType, String>> ops = new HashMap<>();
        ops.put((String) change.get(0), Map.entry(OpType.valueOf((String) change.get(1)), (String) change.get(2)));
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("elr", elr);
        out.put("resource", resource);
        out.put("present", new TreeMap<>(present));
        out.put("change", change);
        put(out, call(manager, "incrementalAlterConfig", new ConfigResource(ConfigResource.Type.BROKER, resource), ops, false));
        return out;
    }

    @SuppressWarnings("unchecked")
    static void put(Map<String, Object> out, Object result) throws Exception {
        ApiError error = (ApiError) call(result, "response");
        out.put("error", error.error().code());
        out.put("message", error.message());
        List<String> records = new ArrayList<>();
        for (ApiMessageAndVersion record : (List<ApiMessageAndVersion>) call(result, "records")) records.add(record.message().toString());
        out.put("records", error.isSuccess() ? records : List.of());
    }

    // --- replicas

    static List<Object> replicas() {
        List<Object> cases = new ArrayList<>();
        Random random = new Random(4);
        int[] all = {1, 2, 3};
        while (cases.size() < 250) {
            int[] isr = some(random, all, 3);
            int[] elr = without(some(random, all, 2), isr);
            int[] last = isr.length == 0 && elr.length == 0 && random.nextBoolean() ? new int[] {1 + random.nextInt(3)} : new int[0];
            int leader = isr.length > 0 && random.nextInt(4) > 0 ? isr[random.nextInt(isr.length)] : -1;
            int[] alive = some(random, all, 3);
            int removed = 1 + random.nextInt(3), minIsr = 1 + random.nextInt(3);
            boolean on = random.nextInt(3) > 0, unclean = random.nextInt(3) == 0, bumps = random.nextInt(4) == 0, recovers = random.nextInt(4) == 0;
            if (Arrays.stream(isr).noneMatch(id -> id == removed)) continue;
            if (!on) { elr = new int[0]; last = new int[0]; }
            Uuid[] directories = {new Uuid(7, 1), new Uuid(7, 2), new Uuid(7, 3)};
            PartitionRegistration partition = new PartitionRegistration.Builder().setReplicas(all).setDirectories(directories).setIsr(isr)
                .setElr(elr).setLastKnownElr(last).setLeader(leader).setLeaderEpoch(7).setPartitionEpoch(9)
                .setLeaderRecoveryState(recovers ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED).build();
            PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, new Uuid(0, 9), 4,
                id -> id != removed && Arrays.stream(alive).anyMatch(one -> one == id),
                MetadataVersion.fromFeatureLevel((short) (bumps ? 11 : 25)), minIsr);
            builder.setEligibleLeaderReplicasEnabled(on);
            if (unclean) builder.setElection(PartitionChangeBuilder.Election.UNCLEAN);
            builder.setTargetIsr(list(without(isr, new int[] {removed})));
            builder.setDefaultDirProvider(id -> directories[id - 1]);
            Map<String, Object> out = new LinkedHashMap<>();
            out.put("isr", isr);
            out.put("elr", elr);
            out.put("last", last);
            out.put("leader", leader);
            out.put("recovers", recovers);
            out.put("alive", alive);
            out.put("removed", removed);
            out.put("min_isr", minIsr);
            out.put("on", on);
            out.put("unclean", unclean);
            out.put("bumps", bumps);
            out.put("record", builder.build().map(record -> change((PartitionChangeRecord) record.message())).orElse(null));
            cases.add(out);
        }
        return cases;
    }

    static Map<String, Object> change(PartitionChangeRecord record) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("isr", record.isr());
        out.put("leader", record.leader());
        out.put("leader_recovery_state", record.leaderRecoveryState());
        // Kafka's set of candidates has no order.
        out.put("eligible_leader_replicas", record.eligibleLeaderReplicas() == null ? null : new TreeSet<>(record.eligibleLeaderReplicas()));
        out.put("last_known_elr", record.lastKnownElr());
        return out;
    }

    static int[] some(Random random, int[] all, int most) {
        List<Integer> shuffled = new ArrayList<>(list(all));
        Collections.shuffle(shuffled, random);
        return shuffled.subList(0, random.nextInt(most + 1)).stream().mapToInt(Integer::intValue).toArray();
    }

    static int[] without(int[] from, int[] others) {
        return Arrays.stream(from).filter(id -> Arrays.stream(others).noneMatch(other -> other == id)).toArray();
    }

    static List<Integer> list(int[] values) {
        return Arrays.stream(values).boxed().toList();
    }

    static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass())
            for (Method method : type.getDeclaredMethods())
                if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                    method.setAccessible(true);
                    return method.invoke(target, arguments);
                }
        throw new NoSuchMethodException(name);
    }
}
