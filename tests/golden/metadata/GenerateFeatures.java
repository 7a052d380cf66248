// Writes features.json: Kafka's levels of metadata.version and of the other features.
//
//   java -cp '.cache/kafka/libs/*' tests/golden/metadata/GenerateFeatures.java > tests/golden/metadata/features.json

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;

public class GenerateFeatures {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("minimum", MetadataVersion.MINIMUM_VERSION.featureLevel());
        out.put("latest_production", MetadataVersion.latestProduction().featureLevel());
        List<Object> levels = new ArrayList<>();
        List<Object> changed = new ArrayList<>();
        for (MetadataVersion one : MetadataVersion.VERSIONS) {
            levels.add(level(one));
            for (MetadataVersion other : MetadataVersion.VERSIONS)
                if (MetadataVersion.checkIfMetadataChanged(one, other))
                    changed.add(List.of(one.featureLevel(), other.featureLevel()));
        }
        out.put("metadata_versions", levels);
        out.put("metadata_changed", changed);
        Map<String, Object> features = new LinkedHashMap<>();
        for (Feature feature : Feature.PRODUCTION_FEATURES) features.put(feature.featureName(), feature(feature));
        out.put("features", features);
        out.put("release_versions", releases());
        System.out.println(new ObjectMapper().writerWithDefaultPrettyPrinter().writeValueAsString(out));
    }

    static Map<String, Object> level(MetadataVersion version) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("level", version.featureLevel());
        out.put("name", version.version());
        out.put("release", version.shortVersion());
        out.put("did_metadata_change", version.didMetadataChange());
        out.put("production", version.isProduction());
        out.put("register_broker", version.registerBrokerRecordVersion());
        out.put("partition", version.partitionRecordVersion());
        out.put("partition_change", version.partitionChangeRecordVersion());
        out.put("controllers", version.isControllerRegistrationSupported());
        out.put("scram", version.isScramSupported());
        out.put("transactions", version.isMetadataTransactionSupported());
        out.put("delegation_tokens", version.isDelegationTokenSupported());
        out.put("directories", version.isDirectoryAssignmentSupported());
        out.put("elr", version.isElrSupported());
        Map<String, Object> defaults = new LinkedHashMap<>();
        for (Feature feature : Feature.PRODUCTION_FEATURES) defaults.put(feature.featureName(), feature.defaultLevel(version));
        out.put("defaults", defaults);
        return out;
    }

    static Map<String, Object> feature(Feature feature) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("minimum", feature.minimumProduction());
        out.put("latest_production", feature.latestProduction());
        List<Object> levels = new ArrayList<>();
        for (FeatureVersion version : feature.featureVersions()) {
            Map<String, Object> level = new LinkedHashMap<>();
            level.put("level", version.featureLevel());
            level.put("bootstrap_metadata_version", version.bootstrapMetadataVersion().featureLevel());
            level.put("dependencies", new TreeMap<>(version.dependencies()));
            levels.add(level);
        }
        out.put("levels", levels);
        return out;
    }

    // What kafka-storage format takes after --release-version; null is refused.
    static Map<String, Object> releases() {
        List<String> texts = new ArrayList<>();
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            texts.add(version.version());
            texts.add(version.shortVersion());
            texts.add(version.shortVersion() + ".1");
        }
        texts.addAll(List.of("", "4", "4.0.", "4.0..", "4.0.x.y", "4.0.1-IV3", "4.0-IV4", "4.0-iv3", " 4.0", "3.3-IV2", "3.2",
            "3.7-IV1", "5.0", "25", "4.", ".", "..", "4..0", "4.0-IV3.1", "IBP_4_0_IV3", "04.0", "4.00"));
        Map<String, Object> out = new LinkedHashMap<>();
        for (String text : texts) {
            try {
                out.put(text, MetadataVersion.fromVersionString(text, false).featureLevel());
            } catch (IllegalArgumentException refused) {
                out.put(text, null);
            }
        }
        return out;
    }
}
