package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.Set;

/**
 * The KRaft controller's managers of brokers and partitions without the quorum around them: what a request or an event would
 * write is taken as written. There is one topic of one partition, "t". It stands in Kafka's package because they are not public.
 */
public final class Rule {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "t";
    private static final String CLUSTER = "VjuT2w2eRNuVqq3pJwj0Eg";

    private final FeatureControlManager features;
    private final ConfigurationControlManager config;
    private final ClusterControlManager cluster;
    private final ReplicationControlManager replication;
    private long offset;

    public Rule(JsonNode a) {
        LogContext log = new LogContext();
        SnapshotRegistry registry = new SnapshotRegistry(log);
        features = new FeatureControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(100, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(100))).build();
        features.replay(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME).setFeatureLevel(MetadataVersion.latestProduction().featureLevel()));
        features.replay(new FeatureLevelRecord().setName(EligibleLeaderReplicasVersion.FEATURE_NAME).setFeatureLevel((short) (a.get("elr").asBoolean() ? 1 : 0)));
        config = new ConfigurationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry).setFeatureControl(features)
            .setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema()).setNodeId(100)
            .setStaticConfig(Map.of("min.insync.replicas", a.get("minIsr").asText(), "unclean.leader.election.enable", a.get("unclean").asText())).build();
        cluster = new ClusterControlManager.Builder().setLogContext(log).setClusterId(CLUSTER).setTime(Time.SYSTEM).setSnapshotRegistry(registry)
            .setSessionTimeoutNs(Long.MAX_VALUE / 4).setReplicaPlacer(new StripedReplicaPlacer(new Random(0))).setFeatureControlManager(features)
            .setMetrics(new QuorumControllerMetrics(Optional.empty(), Time.SYSTEM, 1000))
            .setBrokerShutdownHandler((id, clean, records) -> shutdown(id, clean, records)).build();
        replication = new ReplicationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry).setConfigurationControl(config)
            .setClusterControl(cluster).setFeatureControl(features).setDefaultReplicationFactor((short) 1).setDefaultNumPartitions(1)
            .setMaxElectionsPerImbalance(1000).setCreateTopicPolicy(Optional.empty()).build();
        cluster.activate();
    }

    private void shutdown(int id, boolean clean, List<ApiMessageAndVersion> records) {
        replication.handleBrokerShutdown(id, clean, records);
    }

    /** Does one thing and answers the partition after it, with the error if it was refused. */
    public JsonNode play(JsonNode a) {
        String error = "";
        try {
            error = switch (a.get("do").asText()) {
                case "up" -> up(a.get("node").asInt(), a.get("clean").asBoolean());
                case "down" -> down(a.get("node").asInt());
                case "stop" -> heartbeat(a.get("node").asInt(), false, true);
                case "create" -> create(a.get("to"));
                case "alter" -> alter(a);
                case "elect" -> elect(a.get("unclean").asBoolean());
                case "reassign" -> reassign(a.get("to"));
                case "unclean" -> write(replication.maybeElectUncleanLeaders());
                default -> throw new IllegalArgumentException(a.toString());
            };
        } catch (ApiException e) {
            error = Errors.forException(e).name();
        } catch (IllegalArgumentException e) { // a node that is no replica any more was about to lead
            error = "broken";
        }
        ObjectNode out = JSON.createObjectNode().put("error", error);
        PartitionRegistration p = partition();
        if (p != null) out.set("partition", state(p));
        return out;
    }

    private String up(int id, boolean clean) {
        BrokerRegistration old = cluster.brokerRegistrations().get(id);
        if (old != null && !old.fenced()) down(id);
        var features = new BrokerRegistrationRequestData.FeatureCollection();
        QuorumFeatures.defaultSupportedFeatureMap(true).forEach((name, range) -> features.add(
            new BrokerRegistrationRequestData.Feature().setName(name).setMinSupportedVersion(range.min()).setMaxSupportedVersion(range.max())));
        var listeners = new BrokerRegistrationRequestData.ListenerCollection();
        listeners.add(new BrokerRegistrationRequestData.Listener().setName("PLAINTEXT").setHost("localhost").setPort(9092 + id).setSecurityProtocol((short) 0));
        write(cluster.registerBroker(new BrokerRegistrationRequestData().setBrokerId(id).setClusterId(CLUSTER).setIncarnationId(Uuid.randomUuid())
            .setFeatures(features).setListeners(listeners).setLogDirs(List.of(new Uuid(7, id + 1000)))
            .setPreviousBrokerEpoch(old != null && clean ? old.epoch() : -1),
            offset, this.features.finalizedFeatures(Long.MAX_VALUE), true));
        return heartbeat(id, false, false);
    }

    private String down(int id) {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        BrokerRegistration b = cluster.brokerRegistrations().get(id);
        if (b == null || b.fenced()) return "";
        replication.handleBrokerFenced(id, records);
        cluster.heartbeatManager().fence(id);
        replay(records);
        return "";
    }

    private String heartbeat(int id, boolean fence, boolean stop) {
        BrokerRegistration b = cluster.brokerRegistrations().get(id);
        if (b == null) return Errors.STALE_BROKER_EPOCH.name();
        return write(replication.processBrokerHeartbeat(new BrokerHeartbeatRequestData().setBrokerId(id).setBrokerEpoch(b.epoch())
            .setCurrentMetadataOffset(Long.MAX_VALUE).setWantFence(fence).setWantShutDown(stop), 0));
    }

    private String create(JsonNode to) {
        var assignment = new CreateTopicsRequestData.CreatableReplicaAssignmentCollection();
        assignment.add(new CreateTopicsRequestData.CreatableReplicaAssignment().setPartitionIndex(0).setBrokerIds(list(to)));
        var topics = new CreateTopicsRequestData.CreatableTopicCollection();
        topics.add(new CreateTopicsRequestData.CreatableTopic().setName(TOPIC).setNumPartitions(-1).setReplicationFactor((short) -1).setAssignments(assignment));
        var r = replication.createTopics(context(), new CreateTopicsRequestData().setTopics(topics), Set.of(TOPIC), false);
        replay(r.records());
        var made = r.response().topics().find(TOPIC);
        return made.errorCode() == 0 ? "" : made.errorMessage();
    }

    private String alter(JsonNode a) {
        PartitionRegistration p = partition();
        if (p == null) return Errors.UNKNOWN_TOPIC_OR_PARTITION.name();
        int node = a.get("node").asInt();
        List<AlterPartitionRequestData.BrokerState> isr = new ArrayList<>();
        for (int id : list(a.get("isr"))) isr.add(new AlterPartitionRequestData.BrokerState().setBrokerId(id).setBrokerEpoch(epoch(id)));
        var topic = new AlterPartitionRequestData.TopicData().setTopicId(replication.getTopicId(TOPIC)).setPartitions(List.of(
            new AlterPartitionRequestData.PartitionData().setPartitionIndex(0).setLeaderEpoch(p.leaderEpoch).setPartitionEpoch(p.partitionEpoch)
                .setLeaderRecoveryState((a.get("recovering").asBoolean() ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED).value())
                .setNewIsrWithEpochs(isr)));
        var r = replication.alterPartition(context(), new AlterPartitionRequestData().setBrokerId(node).setBrokerEpoch(epoch(node)).setTopics(List.of(topic)));
        replay(r.records());
        if (r.response().errorCode() != 0) return name(r.response().errorCode());
        return name(r.response().topics().get(0).partitions().get(0).errorCode());
    }

    private String elect(boolean unclean) {
        var topics = new ElectLeadersRequestData.TopicPartitionsCollection();
        topics.add(new ElectLeadersRequestData.TopicPartitions().setTopic(TOPIC).setPartitions(List.of(0)));
        var r = replication.electLeaders(new ElectLeadersRequestData().setElectionType((byte) (unclean ? 1 : 0)).setTopicPartitions(topics));
        replay(r.records());
        return name(r.response().replicaElectionResults().get(0).partitionResult().get(0).errorCode());
    }

    private String reassign(JsonNode to) {
        var r = replication.alterPartitionReassignments(new AlterPartitionReassignmentsRequestData().setTopics(List.of(
            new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName(TOPIC).setPartitions(List.of(
                new AlterPartitionReassignmentsRequestData.ReassignablePartition().setPartitionIndex(0).setReplicas(to.isNull() ? null : list(to)))))));
        replay(r.records());
        if (r.response().errorCode() != 0) return name(r.response().errorCode());
        return name(r.response().responses().get(0).partitions().get(0).errorCode());
    }

    private static ControllerRequestContext context() {
        return new ControllerRequestContext(new RequestHeaderData().setRequestApiVersion(ApiKeys.ALTER_PARTITION.latestVersion()), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }

    private long epoch(int id) {
        BrokerRegistration b = cluster.brokerRegistrations().get(id);
        return b == null ? -1 : b.epoch();
    }

    private String write(ControllerResult<?> r) {
        replay(r.records());
        return "";
    }

    private void replay(List<ApiMessageAndVersion> records) {
        for (ApiMessageAndVersion r : records) {
            ApiMessage m = r.message();
            if (m instanceof TopicRecord t) replication.replay(t);
            else if (m instanceof PartitionRecord p) replication.replay(p);
            else if (m instanceof PartitionChangeRecord c) replication.replay(c);
            else if (m instanceof ClearElrRecord c) replication.replay(c);
            else if (m instanceof ConfigRecord c) config.replay(c);
            else if (m instanceof RegisterBrokerRecord b) cluster.replay(b, offset);
            else if (m instanceof BrokerRegistrationChangeRecord b) cluster.replay(b);
            else throw new IllegalStateException("record " + m);
            offset++;
        }
    }

    private static String name(short code) {
        return code == 0 ? "" : Errors.forCode(code).name();
    }

    private PartitionRegistration partition() {
        Uuid id = replication.getTopicId(TOPIC);
        return id == null ? null : replication.getPartition(id, 0);
    }

    /** A partition as partlog.Placing shows it, too. */
    public static ObjectNode state(PartitionRegistration p) {
        ObjectNode out = JSON.createObjectNode();
        out.put("leader", p.leader).put("leaderEpoch", p.leaderEpoch).put("partitionEpoch", p.partitionEpoch)
            .put("recovering", p.leaderRecoveryState == LeaderRecoveryState.RECOVERING);
        out.set("replicas", JSON.valueToTree(p.replicas));
        out.set("isr", JSON.valueToTree(p.isr));
        out.set("elr", JSON.valueToTree(p.elr));
        out.set("lastKnownElr", JSON.valueToTree(p.lastKnownElr));
        out.set("adding", JSON.valueToTree(p.addingReplicas));
        out.set("removing", JSON.valueToTree(p.removingReplicas));
        return out;
    }

    private static List<Integer> list(JsonNode n) {
        List<Integer> out = new ArrayList<>();
        n.forEach(e -> out.add(e.asInt()));
        return out;
    }
}
