// Each operation of Java's Admin once, against one node; one line of JSON for each:
//   java -cp '.cache/kafka/libs/*' tests/peers/JavaAdmin.java HOST:PORT NODE_ID PREFIX [PART...]
// The parts are topics (always run), configs, partitions, groups, cluster; all if none is named.
// PREFIX begins the names of the topics and groups it makes; what it lists is limited to these.
// A line is {"part": PART, "operation": NAME, "answer": ...}; an error is {"error": CLASS, "message": TEXT},
// for the whole call or in the place of the item it concerns.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaAdmin {
    static final Set<String> NOT_SHOWN = Set.of("hashCode", "toString", "getClass", "clone", "values");
    static final long PATIENCE_MS = 30_000;

    final ObjectMapper json = new ObjectMapper();
    final String bootstrap;
    final Admin admin;
    String part;
    final int node;
    final String prefix;

    JavaAdmin(String bootstrap, int node, String prefix) {
        this.bootstrap = bootstrap;
        this.node = node;
        this.prefix = prefix;
        admin = Admin.create(Map.of(
            "bootstrap.servers", bootstrap, "default.api.timeout.ms", 20_000, "request.timeout.ms", 10_000));
    }

    // What an answer says

    static Object error(Throwable thrown) {
        Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("error", cause.getClass().getSimpleName());
        shown.put("message", cause.getMessage());
        return shown;
    }

    static boolean timedOut(Exception thrown) {
        return thrown.getCause() instanceof TimeoutException;
    }

    /** Anything as JSON: an object is what its methods without arguments return. */
    static Object shown(Object value) throws Exception {
        if (value instanceof KafkaFuture<?> future) {
            try {
                return shown(future.get());
            } catch (ExecutionException thrown) {
                return error(thrown);
            }
        }
        if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean)
            return value;
        if (value instanceof Throwable thrown) return error(thrown);
        if (value instanceof Optional<?> optional) return shown(optional.orElse(null));
        if (value instanceof OptionalInt optional)
            return optional.isPresent() ? optional.getAsInt() : null;
        if (value instanceof OptionalLong optional)
            return optional.isPresent() ? optional.getAsLong() : null;
        if (value instanceof Enum<?> constant) return constant.name();
        if (value instanceof Uuid || value instanceof TopicPartition || value instanceof TopicPartitionReplica)
            return value.toString();
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> fields = new TreeMap<>();
            for (var entry : map.entrySet())
                fields.put(name(entry.getKey()), shown(entry.getValue()));
            return fields;
        }
        if (value instanceof Collection<?> collection) {
            List<Object> items = new ArrayList<>();
            for (Object item : collection) items.add(shown(item));
            if (!(value instanceof List))
                items.sort((a, b) -> String.valueOf(a).compareTo(String.valueOf(b)));
            return items;
        }
        Map<String, Object> fields = new TreeMap<>();
        for (Method method : value.getClass().getMethods())
            if (method.getParameterCount() == 0 && !Modifier.isStatic(method.getModifiers())
                    && method.getDeclaringClass() != Object.class
                    && method.getReturnType() != void.class
                    && !method.isAnnotationPresent(Deprecated.class)
                    && !NOT_SHOWN.contains(method.getName())) {
                method.setAccessible(true);
                fields.put(method.getName(), shown(method.invoke(value)));
            }
        return fields;
    }

    static String name(Object key) {
        if (key instanceof ConfigResource resource)
            return resource.type().name().toLowerCase() + " " + resource.name();
        return String.valueOf(key);
    }

    void operation(String name, Callable<Object> call) throws Exception {
        Object answer;
        try {
            answer = shown(call.call());
        } catch (Exception thrown) {
            answer = error(thrown);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("part", part);
        line.put("operation", name);
        line.put("answer", answer);
        System.out.println(json.writeValueAsString(line));
    }

    // The members of groups, and records

    void produce(String topic, int partitions, int count) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", false);
        try (var producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < count; i++)
                producer.send(new ProducerRecord<>(
                    topic, i % partitions, 1_000_000_000_000L + i, new byte[] {(byte) i}, new byte[10])).get();
        }
    }

    /** A member of a group that stays until told to leave. */
    class Member implements AutoCloseable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final AtomicBoolean leaves = new AtomicBoolean();
        final AtomicBoolean assigned = new AtomicBoolean();
        final Thread thread;

        Member(String group, String protocol, String instance, String topic) throws Exception {
            Map<String, Object> properties = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
                "client.id", "member", "auto.offset.reset", "earliest", "enable.auto.commit", false));
            if (instance != null) properties.put("group.instance.id", instance);
            consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(topic));
            thread = new Thread(() -> {
                try (consumer) {
                    while (!leaves.get()) {
                        consumer.poll(Duration.ofMillis(100));
                        if (!consumer.assignment().isEmpty()) assigned.set(true);
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (!assigned.get()) {
                if (System.currentTimeMillis() > deadline || !thread.isAlive())
                    throw new IllegalStateException("no assignment in " + group);
                Thread.sleep(20);
            }
        }

        @Override public void close() throws Exception {
            leaves.set(true);
            thread.join();
        }
    }

    // What has been changed: Kafka's controller has done it, its broker learns of it a while later

    static void until(Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline)
                throw new IllegalStateException("what was changed did not come to be seen");
            Thread.sleep(20);
        }
    }

    int partitions(String topic) throws Exception {
        try {
            return admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().size();
        } catch (ExecutionException thrown) {
            return 0;
        }
    }

    String value(ConfigResource resource, String name) throws Exception {
        return admin.describeConfigs(List.of(resource)).values().get(resource).get().get(name).value();
    }

    // What is compared

    boolean mine(String name) {
        return name.startsWith(prefix);
    }

    static ConfigResource resource(ConfigResource.Type type, String name) {
        return new ConfigResource(type, name);
    }

    Object configs(ConfigResource.Type type, String... names) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        for (String name : names) resources.add(resource(type, name));
        Map<ConfigResource, Object> found = new LinkedHashMap<>();
        admin.describeConfigs(resources, new DescribeConfigsOptions().includeSynonyms(true)).values()
            .forEach((each, future) -> {
                try {
                    Map<String, Object> entries = new TreeMap<>();
                    for (ConfigEntry entry : future.get().entries()) entries.put(entry.name(), entry);
                    found.put(each, entries);
                } catch (Exception thrown) {
                    found.put(each, error(thrown));
                }
            });
        return found;
    }

    Object alter(ConfigResource resource, AlterConfigOp.OpType type, String name, String value) {
        return admin.incrementalAlterConfigs(Map.of(
            resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), type)))).values();
    }

    void topics() throws Exception {
        part = "topics";
        String one = prefix + "one", two = prefix + "two", absent = prefix + "absent";
        operation("createTopics", () -> admin.createTopics(List.of(
            new NewTopic(one, 3, (short) 1).configs(Map.of("retention.ms", "100000", "max.message.bytes", "5000")),
            new NewTopic(two, Optional.empty(), Optional.empty()),
            new NewTopic(prefix + "assigned", Map.of(0, List.of(node), 1, List.of(node))))).values());
        // The records of this topic are of the year 2001, and must not expire during a slow test.
        var created = admin.createTopics(List.of(
            new NewTopic(prefix + "told", 2, (short) 1).configs(Map.of("retention.ms", "-1"))));
        operation("createTopics, what is told", () -> {
            Map<String, Object> entries = new TreeMap<>();
            for (ConfigEntry entry : created.config(prefix + "told").get().entries())
                entries.put(entry.name(), entry);
            return Map.of("configs", entries, "partitions", created.numPartitions(prefix + "told"),
                "replicationFactor", created.replicationFactor(prefix + "told"));
        });
        operation("createTopics, refused", () -> admin.createTopics(List.of(
            new NewTopic(one, 1, (short) 1),
            new NewTopic(prefix + "no/name", 1, (short) 1),
            new NewTopic(prefix + "none", 0, (short) 1),
            new NewTopic(prefix + "factor0", 1, (short) 0),
            new NewTopic(prefix + "factor2", 1, (short) 2),
            new NewTopic(prefix + "elsewhere", Map.of(0, List.of(99))),
            new NewTopic(prefix + "twice", Map.of(0, List.of(node, node))),
            new NewTopic(prefix + "gap", Map.of(1, List.of(node))),
            new NewTopic(prefix + "unknown-config", 1, (short) 1).configs(Map.of("no.such", "1")),
            new NewTopic(prefix + "bad-value", 1, (short) 1).configs(Map.of("retention.ms", "x")))).values());
        operation("createTopics, only validated", () -> admin.createTopics(
            List.of(new NewTopic(absent, 1, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).values());
        operation("createPartitions", () -> admin.createPartitions(
            Map.of(two, NewPartitions.increaseTo(2))).values());
        operation("createPartitions, refused", () -> {
            Map<String, Object> found = new TreeMap<>();
            found.put("same", admin.createPartitions(Map.of(one, NewPartitions.increaseTo(3))).values().get(one));
            found.put("fewer", admin.createPartitions(Map.of(one, NewPartitions.increaseTo(2))).values().get(one));
            found.put("absent", admin.createPartitions(Map.of(absent, NewPartitions.increaseTo(2))).values().get(absent));
            found.put("too few", admin.createPartitions(Map.of(
                one, NewPartitions.increaseTo(5, List.of(List.of(node))))).values().get(one));
            found.put("elsewhere", admin.createPartitions(Map.of(
                one, NewPartitions.increaseTo(4, List.of(List.of(99))))).values().get(one));
            return found;
        });
        until(() -> partitions(one) == 3 && partitions(two) == 2 && partitions(prefix + "told") == 2);
        operation("listTopics", () -> {
            Map<String, Object> found = new TreeMap<>();
            admin.listTopics(new ListTopicsOptions().listInternal(true)).namesToListings().get().forEach(
                (name, listing) -> { if (mine(name)) found.put(name, listing); });
            return found;
        });
        operation("describeTopics", () -> admin.describeTopics(
            List.of(one, two, absent),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).topicNameValues());
        operation("describeTopics by id", () -> {
            Uuid id = admin.describeTopics(List.of(one)).topicNameValues().get(one).get().topicId();
            Map<String, Object> found = new TreeMap<>();
            found.put("known", admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id));
            Uuid other = new Uuid(1, 2);
            found.put("unknown", admin.describeTopics(TopicCollection.ofTopicIds(List.of(other))).topicIdValues().get(other));
            return found;
        });
    }

    void configs() throws Exception {
        part = "configs";
        String one = prefix + "one", group = prefix + "configured";
        ConfigResource topic = resource(ConfigResource.Type.TOPIC, one);
        ConfigResource broker = resource(ConfigResource.Type.BROKER, String.valueOf(node));
        ConfigResource ofGroup = resource(ConfigResource.Type.GROUP, group);
        ConfigResource logger = resource(ConfigResource.Type.BROKER_LOGGER, String.valueOf(node));
        operation("describeConfigs, topic", () -> configs(ConfigResource.Type.TOPIC, one, prefix + "absent", prefix + "no/name"));
        operation("describeConfigs, broker", () -> configs(ConfigResource.Type.BROKER, String.valueOf(node)));
        operation("describeConfigs, brokers refused", () -> {
            Map<String, Object> found = new TreeMap<>();
            for (String name : List.of("99", "x")) {
                ConfigResource other = resource(ConfigResource.Type.BROKER, name);
                try {
                    found.put(name, admin.describeConfigs(
                        List.of(other), new DescribeConfigsOptions().timeoutMs(1_000)).values().get(other).get());
                } catch (Exception thrown) {
                    found.put(name, timedOut(thrown) ? "times out" : error(thrown));
                }
            }
            return found;
        });
        operation("describeConfigs, all brokers", () -> configs(ConfigResource.Type.BROKER, ""));
        operation("describeConfigs, group", () -> configs(ConfigResource.Type.GROUP, group));
        operation("describeConfigs, loggers", () -> {
            List<Object> kinds = new ArrayList<>();  // the loggers of two programs are others
            for (ConfigEntry entry : admin.describeConfigs(List.of(logger)).values().get(logger).get().entries()) {
                Object kind = Map.of("source", entry.source().name(), "readOnly", entry.isReadOnly(),
                    "sensitive", entry.isSensitive(), "type", entry.type().name());
                if (!kinds.contains(kind)) kinds.add(kind);
            }
            return kinds;
        });
        operation("describeConfigs, client metrics", () -> configs(ConfigResource.Type.CLIENT_METRICS, prefix + "metrics"));
        operation("incrementalAlterConfigs, topic", () -> {
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("set", alter(topic, AlterConfigOp.OpType.SET, "segment.ms", "70000"));
            found.put("append", alter(topic, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact"));
            found.put("append to a number", alter(topic, AlterConfigOp.OpType.APPEND, "segment.ms", "1"));
            found.put("subtract", alter(topic, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete"));
            found.put("delete", alter(topic, AlterConfigOp.OpType.DELETE, "retention.ms", ""));
            found.put("unknown", alter(topic, AlterConfigOp.OpType.SET, "no.such", "1"));
            found.put("bad value", alter(topic, AlterConfigOp.OpType.SET, "segment.ms", "-5"));
            found.put("absent", alter(resource(ConfigResource.Type.TOPIC, prefix + "absent"), AlterConfigOp.OpType.SET, "segment.ms", "70000"));
            Map<String, Object> seen = new LinkedHashMap<>();
            for (var entry : found.entrySet()) seen.put(entry.getKey(), shown(entry.getValue()));
            return seen;
        });
        until(() -> value(topic, "segment.ms").equals("70000") && !value(topic, "retention.ms").equals("100000"));
        operation("describeConfigs, topic that was altered", () -> configs(ConfigResource.Type.TOPIC, one));
        operation("incrementalAlterConfigs, group", () -> {
            Map<String, Object> seen = new LinkedHashMap<>();
            seen.put("set", shown(alter(ofGroup, AlterConfigOp.OpType.SET, "consumer.session.timeout.ms", "50000")));
            seen.put("too small", shown(alter(ofGroup, AlterConfigOp.OpType.SET, "consumer.session.timeout.ms", "1")));
            seen.put("unknown", shown(alter(ofGroup, AlterConfigOp.OpType.SET, "no.such", "1")));
            return seen;
        });
        until(() -> value(ofGroup, "consumer.session.timeout.ms").equals("50000"));
        operation("describeConfigs, group that was altered", () -> configs(ConfigResource.Type.GROUP, group));
        operation("incrementalAlterConfigs, broker", () -> alter(broker, AlterConfigOp.OpType.SET, "log.cleaner.threads", "2"));
        operation("incrementalAlterConfigs, broker, unset", () -> alter(broker, AlterConfigOp.OpType.DELETE, "log.cleaner.threads", ""));
        operation("incrementalAlterConfigs, broker's fixed setting", () -> alter(broker, AlterConfigOp.OpType.SET, "num.partitions", "2"));
        operation("incrementalAlterConfigs, broker's unknown setting", () -> alter(broker, AlterConfigOp.OpType.SET, "no.such", "2"));
        operation("incrementalAlterConfigs, broker's unknown setting, unset", () -> alter(broker, AlterConfigOp.OpType.DELETE, "no.such", ""));
        operation("incrementalAlterConfigs, logger", () -> {
            Map<String, Object> seen = new LinkedHashMap<>();
            List<String> names = new ArrayList<>();
            for (ConfigEntry entry : admin.describeConfigs(List.of(logger)).values().get(logger).get().entries())
                names.add(entry.name());
            names.sort(null);
            String name = names.get(names.size() / 2);  // not the first, which may be the root of all
            seen.put("set", shown(alter(logger, AlterConfigOp.OpType.SET, name, "ERROR")));
            seen.put("bad level", shown(alter(logger, AlterConfigOp.OpType.SET, name, "LOUD")).toString().contains("InvalidConfig"));
            seen.put("unset", shown(alter(logger, AlterConfigOp.OpType.DELETE, name, "")));
            seen.put("append", shown(alter(logger, AlterConfigOp.OpType.APPEND, name, "ERROR")).toString().contains("InvalidRequest"));
            return seen;
        });
        operation("listConfigResources", () -> {
            List<Object> found = new ArrayList<>();
            for (ConfigResource each : admin.listConfigResources().all().get())
                if (mine(each.name()) || !Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.GROUP).contains(each.type()))
                    found.add(name(each));
            found.sort(null);
            return found;
        });
        operation("listConfigResources, groups", () -> {
            List<Object> found = new ArrayList<>();
            for (ConfigResource each : admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all().get())
                if (mine(each.name())) found.add(name(each));
            return found;
        });
    }

    void partitions() throws Exception {
        part = "partitions";
        String one = prefix + "one", absent = prefix + "absent";
        TopicPartition first = new TopicPartition(one, 0), second = new TopicPartition(one, 1);
        TopicPartition beyond = new TopicPartition(one, 9), unknown = new TopicPartition(absent, 0);
        for (ElectionType type : ElectionType.values()) {
            operation("electLeaders, " + type.name().toLowerCase(), () -> admin.electLeaders(
                type, Set.of(first, second, beyond, unknown)).partitions());
            operation("electLeaders, " + type.name().toLowerCase() + ", all", () -> {
                Map<String, Object> found = new TreeMap<>();
                admin.electLeaders(type, null).partitions().get().forEach(
                    (tp, error) -> { if (mine(tp.topic())) found.put(tp.toString(), error); });
                return found;
            });
        }
        operation("alterPartitionReassignments", () -> {
            Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new LinkedHashMap<>();
            wanted.put(first, Optional.of(new NewPartitionReassignment(List.of(node))));
            wanted.put(second, Optional.of(new NewPartitionReassignment(List.of(99))));
            wanted.put(new TopicPartition(one, 2), Optional.empty());
            wanted.put(beyond, Optional.of(new NewPartitionReassignment(List.of(node))));
            wanted.put(unknown, Optional.of(new NewPartitionReassignment(List.of(node))));
            wanted.put(new TopicPartition(prefix + "two", 0), Optional.of(new NewPartitionReassignment(List.of(node, node))));
            wanted.put(new TopicPartition(prefix + "two", 1), Optional.of(new NewPartitionReassignment(List.of(node, 99))));
            return admin.alterPartitionReassignments(wanted).values();
        });
        operation("alterPartitionReassignments, factor fixed", () -> admin.alterPartitionReassignments(
            Map.of(first, Optional.of(new NewPartitionReassignment(List.of(node))),
                second, Optional.of(new NewPartitionReassignment(List.of(node, 99)))),
            new AlterPartitionReassignmentsOptions().allowReplicationFactorChange(false)).values());
        operation("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
        operation("listPartitionReassignments, some", () -> admin.listPartitionReassignments(
            Set.of(first, beyond, unknown)).reassignments());
        String told = prefix + "told";
        TopicPartition written = new TopicPartition(told, 0);
        produce(told, 2, 30);
        operation("listOffsets", () -> {
            Map<String, Object> found = new TreeMap<>();
            Map<String, OffsetSpec> specs = Map.of(
                "earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                "max timestamp", OffsetSpec.maxTimestamp(), "time", OffsetSpec.forTimestamp(1_000_000_000_010L),
                "after all", OffsetSpec.forTimestamp(2_000_000_000_000L),
                "earliest local", OffsetSpec.earliestLocal(), "latest tiered", OffsetSpec.latestTiered());
            for (var spec : specs.entrySet())
                found.put(spec.getKey(), admin.listOffsets(Map.of(written, spec.getValue())).partitionResult(written));
            return found;
        });
        operation("listOffsets, absent", () -> {
            try {
                return admin.listOffsets(Map.of(beyond, OffsetSpec.latest()),
                    new ListOffsetsOptions().timeoutMs(1_000)).partitionResult(beyond).get();
            } catch (ExecutionException thrown) {
                return timedOut(thrown) ? "times out" : error(thrown);
            }
        });
        operation("deleteRecords", () -> admin.deleteRecords(Map.of(
            written, RecordsToDelete.beforeOffset(4),
            new TopicPartition(told, 1), RecordsToDelete.beforeOffset(400))).lowWatermarks());
        operation("describeProducers", () -> admin.describeProducers(List.of(written)).partitionResult(written));
        operation("describeLogDirs", () -> {
            List<Object> found = new ArrayList<>();
            for (LogDirDescription directory : admin.describeLogDirs(List.of(node)).descriptions().get(node).get().values()) {
                Map<String, Object> seen = new TreeMap<>();
                seen.put("error", error(directory.error() == null ? new Exception("none") : directory.error()));
                seen.put("totalBytes", directory.totalBytes().isPresent());
                seen.put("usableBytes", directory.usableBytes().isPresent());
                Map<String, Object> replicas = new TreeMap<>();
                directory.replicaInfos().forEach((tp, info) -> {
                    if (mine(tp.topic())) replicas.put(tp.toString(), info);
                });
                seen.put("replicas", replicas);
                found.add(seen);
            }
            return found;
        });
        operation("describeReplicaLogDirs", () -> {
            TopicPartitionReplica replica = new TopicPartitionReplica(one, 0, node);
            return admin.describeReplicaLogDirs(List.of(replica, new TopicPartitionReplica(absent, 0, node))).values();
        });
        operation("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(one, 0, node), "/no/such/directory")).values());
    }

    void groups() throws Exception {
        part = "groups";
        String one = prefix + "one", absent = prefix + "absent";
        TopicPartition first = new TopicPartition(one, 0), unknown = new TopicPartition(absent, 0);
        String simple = prefix + "simple";
        operation("alterConsumerGroupOffsets", () -> {
            var altered = admin.alterConsumerGroupOffsets(simple, Map.of(
                first, new OffsetAndMetadata(5, Optional.of(0), "said"), unknown, new OffsetAndMetadata(1)));
            return Map.of("known", altered.partitionResult(first), "unknown", altered.partitionResult(unknown));
        });
        operation("listConsumerGroupOffsets", () -> {
            Map<String, ListConsumerGroupOffsetsSpec> specs = Map.of(
                simple, new ListConsumerGroupOffsetsSpec(), absent, new ListConsumerGroupOffsetsSpec());
            var found = admin.listConsumerGroupOffsets(specs);
            return Map.of("simple", found.partitionsToOffsetAndMetadata(simple),
                "absent", found.partitionsToOffsetAndMetadata(absent));
        });
        for (String protocol : List.of("classic", "consumer")) {
            String group = prefix + protocol;
            try (Member member = new Member(group, protocol, null, one);
                    Member fixed = new Member(group + "-static", protocol, "fixed", one)) {
                operation("describeConsumerGroups, " + protocol, () -> admin.describeConsumerGroups(
                    List.of(group), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).describedGroups());
                operation("describeConsumerGroups, static, " + protocol, () -> admin.describeConsumerGroups(
                    List.of(group + "-static")).describedGroups());
                operation("describeClassicGroups, " + protocol, () -> admin.describeClassicGroups(
                    List.of(group)).describedGroups());
                operation("alterConsumerGroupOffsets, live, " + protocol, () -> admin.alterConsumerGroupOffsets(
                    group, Map.of(first, new OffsetAndMetadata(1))).partitionResult(first));
                operation("deleteConsumerGroupOffsets, live, " + protocol, () -> admin.deleteConsumerGroupOffsets(
                    group, Set.of(first)).partitionResult(first));
                operation("deleteConsumerGroups, live, " + protocol, () -> admin.deleteConsumerGroups(
                    List.of(group)).deletedGroups());
                operation("removeMembers, unknown, " + protocol, () -> {
                    MemberToRemove other = new MemberToRemove("other");
                    return admin.removeMembersFromConsumerGroup(group,
                        new RemoveMembersFromConsumerGroupOptions(List.of(other))).memberResult(other);
                });
                operation("listGroups, live, " + protocol, () -> {
                    List<Object> found = new ArrayList<>();
                    for (GroupListing each : admin.listGroups().all().get())
                        if (each.groupId().startsWith(group)) found.add(each);
                    found.sort((a, b) -> a.toString().compareTo(b.toString()));
                    return found;
                });
                operation("removeMembers, all, " + protocol, () -> admin.removeMembersFromConsumerGroup(
                    group + "-static", new RemoveMembersFromConsumerGroupOptions()).all());
            }
            operation("describeConsumerGroups, empty, " + protocol, () -> admin.describeConsumerGroups(
                List.of(group)).describedGroups());
        }
        operation("describeConsumerGroups, absent", () -> admin.describeConsumerGroups(List.of(absent)).describedGroups());
        operation("describeConsumerGroups, simple", () -> admin.describeConsumerGroups(List.of(simple)).describedGroups());
        operation("describeClassicGroups, absent", () -> admin.describeClassicGroups(List.of(absent)).describedGroups());
        operation("listGroups", () -> {
            List<Object> found = new ArrayList<>();
            for (GroupListing each : admin.listGroups().all().get()) if (mine(each.groupId())) found.add(each);
            found.sort((a, b) -> a.toString().compareTo(b.toString()));
            return found;
        });
        operation("listGroups, consumer protocol", () -> {
            List<Object> found = new ArrayList<>();
            for (GroupListing each : admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))).all().get())
                if (mine(each.groupId())) found.add(each.groupId());
            found.sort(null);
            return found;
        });
        operation("deleteConsumerGroupOffsets", () -> {
            var deleted = admin.deleteConsumerGroupOffsets(simple, Set.of(first, new TopicPartition(one, 1)));
            return Map.of("committed", deleted.partitionResult(first), "not committed", deleted.partitionResult(new TopicPartition(one, 1)));
        });
        operation("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(simple, absent)).deletedGroups());
        operation("removeMembers, absent group", () -> admin.removeMembersFromConsumerGroup(
            absent, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("other")))).all());
    }

    Object quota(ClientQuotaEntity entity, Double rate) {
        return admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", rate))))).all();
    }

    void cluster() throws Exception {
        part = "cluster";
        operation("describeCluster", () -> {
            var found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return Map.of("nodes", found.nodes(), "controller", found.controller(),
                "operations", found.authorizedOperations(), "clusterId", found.clusterId().get().length());
        });
        operation("describeFeatures", () -> admin.describeFeatures().featureMetadata());
        operation("updateFeatures", () -> admin.updateFeatures(
            Map.of("no.such.feature", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).values());
        operation("updateFeatures, off", () -> admin.updateFeatures(
            Map.of("no.such.feature", new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            new UpdateFeaturesOptions()).values());
        operation("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo());
        operation("unregisterBroker", () -> admin.unregisterBroker(99).all());
        operation("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        operation("createAcls", () -> admin.createAcls(List.of(new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED),
            new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)))).all());
        operation("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of("client-id", prefix));
        // What is there after a change, Kafka's broker knows a while later: that would be a race.
        operation("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntity("client-id", prefix)))).entities());
        operation("alterClientQuotas", () -> quota(client, 1e9));
        operation("alterClientQuotas, removed", () -> quota(client, null));
        String user = prefix + "user";
        operation("describeUserScramCredentials", () -> admin.describeUserScramCredentials(List.of(user)).all());
        operation("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion(user, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all());
        operation("alterUserScramCredentials, removed", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))).all());
        operation("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
        operation("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
        operation("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp());
        operation("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp());
        operation("listTransactions", () -> {
            List<Object> found = new ArrayList<>();
            for (TransactionListing each : admin.listTransactions().all().get())
                if (mine(each.transactionalId())) found.add(each.transactionalId());
            return found;
        });
        operation("describeTransactions", () -> admin.describeTransactions(List.of(prefix + "t")).description(prefix + "t"));
        operation("fenceProducers", () -> admin.fenceProducers(List.of(prefix + "t")).all());
        operation("abortTransaction", () -> admin.abortTransaction(
            new AbortTransactionSpec(new TopicPartition(prefix + "one", 0), 1L, (short) 0, 0)).all());
        operation("listClientMetricsResources", () -> admin.listConfigResources(
            Set.of(ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all());
        operation("describeShareGroups", () -> admin.describeShareGroups(List.of(prefix + "share")).describedGroups());
        operation("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of(prefix + "streams")).describedGroups());
    }

    void removal() throws Exception {
        part = "topics";
        String one = prefix + "one";
        operation("deleteTopics", () -> admin.deleteTopics(List.of(one, prefix + "absent")).topicNameValues());
        operation("deleteTopics by id", () -> {
            String two = prefix + "two";
            Uuid id = admin.describeTopics(List.of(two)).topicNameValues().get(two).get().topicId();
            Uuid other = new Uuid(1, 2);
            var deleted = admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id, other))).topicIdValues();
            return Map.of("known", deleted.get(id), "unknown", deleted.get(other));
        });
    }

    public static void main(String[] args) throws Exception {
        List<String> parts = Arrays.asList(args).subList(3, args.length);
        JavaAdmin run = new JavaAdmin(args[0], Integer.parseInt(args[1]), args[2]);
        run.topics();
        if (parts.isEmpty() || parts.contains("configs")) run.configs();
        if (parts.isEmpty() || parts.contains("partitions")) run.partitions();
        if (parts.isEmpty() || parts.contains("groups")) run.groups();
        if (parts.isEmpty() || parts.contains("cluster")) run.cluster();
        run.removal();
        System.exit(0);
    }
}
