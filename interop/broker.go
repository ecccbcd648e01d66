package interop

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Broker is a single-node KRaft broker on loopback whose log.dirs is one given root. Its own metadata and settings live in
// another directory, so that the root holds partitions and the root's files only. Not safe for concurrent use.
type Broker struct {
	Root      string // log.dirs
	ClusterID string
	Bootstrap string // host:port for clients

	java   *Java
	d      *Driver // formats, and talks to the broker
	dir    string
	config map[string]string

	cmd     *exec.Cmd
	stdin   interface{ Close() error } // the broker halts when this end closes
	exited  chan struct{}
	exitErr error
	log     *brokerLog
}

// BrokerOptions of [NewBroker].
type BrokerOptions struct {
	Dir    string            // for the broker's own files; created
	Root   string            // log.dirs; created; a meta.properties in it is respected
	Config map[string]string // server.properties on top of the defaults
}

// NewBroker formats the directories but starts nothing.
func NewBroker(j *Java, d *Driver, o BrokerOptions) (*Broker, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	identity, err := properties(filepath.Join(o.Root, "meta.properties"))
	if err != nil {
		return nil, err
	}
	b := &Broker{Root: o.Root, ClusterID: identity["cluster.id"], Bootstrap: fmt.Sprintf("127.0.0.1:%d", ports[0]), java: j, d: d, dir: o.Dir}
	if b.ClusterID == "" {
		b.ClusterID = randomID()
	}
	node := identity["node.id"]
	if node == "" {
		node = "1"
	}
	config := map[string]string{
		"process.roles":                   "broker,controller",
		"node.id":                         node,
		"controller.quorum.voters":        fmt.Sprintf("%s@127.0.0.1:%d", node, ports[1]),
		"listeners":                       fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", b.Bootstrap, ports[1]),
		"controller.listener.names":       "CONTROLLER",
		"log.dirs":                        o.Root,
		"metadata.log.dir":                filepath.Join(o.Dir, "metadata"),
		"auto.create.topics.enable":       "false",
		"offsets.topic.num.partitions":    "1",
		"num.network.threads":             "1",
		"num.io.threads":                  "2",
		"background.threads":              "2",
		"message.max.bytes":               "5000000",
		"log.cleaner.dedupe.buffer.size":  "2000000",
		"log.retention.check.interval.ms": "600000",
		"log.initial.task.delay.ms":       "600000", // retention and checkpoints happen when a test asks or at the stop
		"transaction.state.log.min.isr":   "1",

		"offsets.topic.replication.factor":             "1",
		"transaction.state.log.num.partitions":         "1",
		"transaction.state.log.replication.factor":     "1",
		"share.coordinator.state.topic.num.partitions": "1",
	}
	for k, v := range o.Config {
		config[k] = v
	}
	b.config = config
	for _, dir := range []string{o.Root, o.Dir, filepath.Join(o.Dir, "metadata")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := b.writeProperties(); err != nil {
		return nil, err
	}
	_, err = d.call("format", args{"clusterId": b.ClusterID, "config": b.properties()}, nil)
	return b, err
}

func (b *Broker) writeProperties() error {
	var text strings.Builder
	for k, v := range b.config {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	return os.WriteFile(b.properties(), []byte(text.String()), 0o644)
}

// UseRoot makes another root the log.dirs of the stopped broker.
func (b *Broker) UseRoot(root string) error {
	b.Root, b.config["log.dirs"] = root, root
	return b.writeProperties()
}

func (b *Broker) properties() string { return filepath.Join(b.dir, "server.properties") }

// Start starts the JVM and waits until the broker serves.
func (b *Broker) Start() error {
	b.log = &brokerLog{started: make(chan struct{})}
	b.cmd = b.java.Command(context.Background(), []string{"-Dpartlog.level=INFO"}, "partlog.Broker", b.properties())
	b.cmd.Dir = b.dir
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	in, err := b.cmd.StdinPipe()
	if err != nil {
		return err
	}
	b.stdin = in
	if err := b.cmd.Start(); err != nil {
		return err
	}
	b.exited = make(chan struct{})
	go func() {
		b.exitErr = b.cmd.Wait()
		close(b.exited)
	}()
	select {
	case <-b.log.started:
		return nil
	case <-b.exited:
		return fmt.Errorf("interop: the broker ended while starting: %w\n%s", b.exitErr, b.log.last(60))
	case <-time.After(2 * time.Minute):
		b.Kill()
		return fmt.Errorf("interop: the broker did not start in time\n%s", b.log.last(60))
	}
}

// Stop stops the broker cleanly, as SIGTERM does.
func (b *Broker) Stop() error {
	if b.cmd == nil {
		return nil
	}
	if runtime.GOOS == "windows" {
		return errors.New("interop: no clean stop of a broker on windows")
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-b.exited:
	case <-time.After(2 * time.Minute):
		b.Kill()
		return fmt.Errorf("interop: the broker did not stop in time\n%s", b.log.last(60))
	}
	b.cmd = nil
	_ = b.stdin.Close()
	if _, err := os.Stat(filepath.Join(b.Root, ".kafka_cleanshutdown")); err != nil {
		return fmt.Errorf("interop: the broker did not stop cleanly: %w\n%s", err, b.log.last(60))
	}
	return nil
}

// Kill ends the whole JVM with SIGKILL.
func (b *Broker) Kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.exited
	b.cmd = nil
	_ = b.stdin.Close()
}

// LogLines are the lines of the broker's log since the last start that contain s.
func (b *Broker) LogLines(s string) []string { return b.log.containing(s) }

// CreateTopic returns the new topic's id.
func (b *Broker) CreateTopic(topic string, config map[string]string) (id string, err error) {
	var r struct{ TopicID string }
	_, err = b.d.call("createTopic", args{"bootstrap": b.Bootstrap, "topic": topic, "config": config}, &r)
	return r.TopicID, err
}

// CreatePartitions is CreateTopic with more than one partition.
func (b *Broker) CreatePartitions(topic string, partitions int, config map[string]string) (id string, err error) {
	var r struct{ TopicID string }
	_, err = b.d.call("createTopic", args{"bootstrap": b.Bootstrap, "topic": topic, "partitions": partitions, "config": config}, &r)
	return r.TopicID, err
}

// DeleteTopic deletes a topic.
func (b *Broker) DeleteTopic(topic string) error {
	_, err := b.d.call("deleteTopic", args{"bootstrap": b.Bootstrap, "topic": topic}, nil)
	return err
}

// Produce sends records in order through a producer with the given client settings and returns their offsets.
func (b *Broker) Produce(topic string, config map[string]string, rs []Record) (offsets []int64, err error) {
	_, err = b.d.call("produce", args{"bootstrap": b.Bootstrap, "topic": topic, "config": config, "records": rs}, &offsets)
	return offsets, err
}

// ProduceTo is Produce to one of several partitions.
func (b *Broker) ProduceTo(topic string, partition int32, config map[string]string, rs []Record) (offsets []int64, err error) {
	_, err = b.d.call("produce", args{"bootstrap": b.Bootstrap, "topic": topic, "partition": partition, "config": config, "records": rs}, &offsets)
	return offsets, err
}

// ProduceTransaction sends records in one transaction and ends it: "commit", "abort" or "" to leave it open.
func (b *Broker) ProduceTransaction(topic, transactionalID, end string, rs []Record) (offsets []int64, err error) {
	_, err = b.d.call("produce", args{"bootstrap": b.Bootstrap, "topic": topic, "records": rs, "end": end,
		"config": map[string]string{"transactional.id": transactionalID}}, &offsets)
	return offsets, err
}

// Consumed is what a consumer met.
type Consumed struct {
	BeginningOffset int64    `json:"beginningOffset"`
	EndOffset       int64    `json:"endOffset"`
	Records         []Record `json:"records"`
}

// Consume reads partition 0 from its beginning to its end; isolation is "read_uncommitted" or "read_committed".
func (b *Broker) Consume(topic, isolation string, digestOver int) (c Consumed, err error) {
	_, err = b.d.call("consume", args{"bootstrap": b.Bootstrap, "topic": topic, "isolation": isolation, "digestOver": digestOver}, &c)
	return c, err
}

// ConsumeFrom is Consume of one of several partitions.
func (b *Broker) ConsumeFrom(topic string, partition int32, isolation string) (c Consumed, err error) {
	_, err = b.d.call("consume", args{"bootstrap": b.Bootstrap, "topic": topic, "partition": partition, "isolation": isolation}, &c)
	return c, err
}

// DeleteRecords asks the broker to move the log start offset.
func (b *Broker) DeleteRecords(topic string, before int64) (lowWatermark int64, err error) {
	var r struct{ LowWatermark int64 }
	_, err = b.d.call("deleteRecordsBefore", args{"bootstrap": b.Bootstrap, "topic": topic, "offset": before}, &r)
	return r.LowWatermark, err
}

// ListOffset answers spec "earliest", "latest", "maxTimestamp" or "timestamp".
func (b *Broker) ListOffset(topic, spec string, timestamp int64) (r TimeOffset, err error) {
	_, err = b.d.call("listOffset", args{"bootstrap": b.Bootstrap, "topic": topic, "spec": spec, "timestamp": timestamp}, &r)
	return r, err
}

// brokerLog keeps what the broker prints and notices when it serves.
type brokerLog struct {
	mu      sync.Mutex
	text    strings.Builder
	line    strings.Builder
	once    sync.Once
	started chan struct{}
}

func (l *brokerLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	for _, c := range p {
		if c != '\n' {
			l.line.WriteByte(c)
			continue
		}
		if strings.Contains(l.line.String(), "Kafka Server started") {
			l.once.Do(func() { close(l.started) })
		}
		l.line.Reset()
	}
	return len(p), nil
}

func (l *brokerLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(l.text.String(), "\n")
}

func (l *brokerLog) containing(s string) []string {
	var out []string
	for _, line := range l.lines() {
		if strings.Contains(line, s) {
			out = append(out, line)
		}
	}
	return out
}

func (l *brokerLog) last(n int) string {
	lines := l.lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePorts asks the system for ports nobody uses at the moment.
func freePorts(n int) ([]int, error) {
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}

// properties reads key=value lines; a missing file has none.
func properties(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), "="); ok && !strings.HasPrefix(k, "#") {
			out[k] = v
		}
	}
	return out, nil
}

// randomID is a Kafka id: 16 bytes, URL-safe base64 without padding, not beginning with a dash.
func randomID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(b)
}
