package interop

import (
	"context"
	"fmt"
)

// KafkaError is an exception of Kafka's code, reported by the driver.
type KafkaError struct {
	Command string
	Class   string // simple name of the exception class
	Message string
	Log     []string // what Kafka logged meanwhile
}

func (e *KafkaError) Error() string {
	return fmt.Sprintf("interop: %s: %s: %s", e.Command, e.Class, e.Message)
}

// Driver is a JVM that answers commands about Kafka's own classes, one at a time. Methods are safe for concurrent use.
type Driver struct{ *pipe }

// StartDriver starts the JVM; it ends with Close, with Kill, or when this process does.
func StartDriver(j *Java) (*Driver, error) {
	p, err := startPipe(j.Command(context.Background(), nil, "partlog.Driver"))
	if err != nil {
		return nil, err
	}
	d := &Driver{p}
	hello, err := d.Hello()
	if err == nil && hello.Kafka != "4.3.1" {
		err = fmt.Errorf("interop: the driver runs Kafka %s, not 4.3.1", hello.Kafka)
	}
	if err != nil {
		d.Kill()
		return nil, err
	}
	return d, nil
}

// Hello says who answers.
type Hello struct {
	Kafka string `json:"kafka"`
	Java  string `json:"java"`
	PID   int    `json:"pid"`
}

func (d *Driver) Hello() (h Hello, err error) {
	_, err = d.call("hello", nil, &h)
	return h, err
}

// Validate asks Kafka's parser whether each input is exactly one whole batch with a sound header, checksum and records:
// "" for yes, else the reason.
func (d *Driver) Validate(batches [][]byte) (reasons []string, err error) {
	_, err = d.call("validate", map[string]any{"batches": batches}, &reasons)
	return reasons, err
}

// Parse decodes every batch of a region.
func (d *Driver) Parse(raw []byte) (batches []Batch, err error) {
	_, err = d.call("parse", map[string]any{"raw": raw}, &batches)
	return batches, err
}

type rawAnswer struct {
	Raw []byte `json:"raw"`
}

// Build lets Kafka encode a batch.
func (d *Driver) Build(o BuildOptions) ([]byte, error) {
	var r rawAnswer
	_, err := d.call("build", o, &r)
	return r.Raw, err
}

// Marker lets Kafka encode a commit or abort marker.
func (d *Driver) Marker(commit bool, baseOffset, timestamp, producerID int64, producerEpoch int16, coordinatorEpoch int32) ([]byte, error) {
	var r rawAnswer
	_, err := d.call("marker", map[string]any{"commit": commit, "baseOffset": baseOffset, "timestamp": timestamp,
		"producerId": producerID, "producerEpoch": producerEpoch, "coordinatorEpoch": coordinatorEpoch}, &r)
	return r.Raw, err
}

// Control lets Kafka encode a control batch of the metadata log: a type from 2 to 6 with its message as Kafka's JSON has it.
func (d *Driver) Control(kind int, baseOffset, timestamp int64, leaderEpoch int32, message any) ([]byte, error) {
	var r rawAnswer
	_, err := d.call("control", map[string]any{"type": kind, "baseOffset": baseOffset, "timestamp": timestamp, "leaderEpoch": leaderEpoch, "message": message}, &r)
	return r.Raw, err
}

// Compress frames raw with Kafka's codec; magic chooses between the framings of old and new batches.
func (d *Driver) Compress(codec string, level int, magic int8, raw []byte) ([]byte, error) {
	var r rawAnswer
	_, err := d.call("compress", map[string]any{"codec": codec, "level": level, "magic": magic, "raw": raw}, &r)
	return r.Raw, err
}

// Decompress undoes Compress, or what another encoder made.
func (d *Driver) Decompress(codec string, magic int8, raw []byte) ([]byte, error) {
	var r rawAnswer
	_, err := d.call("decompress", map[string]any{"codec": codec, "magic": magic, "raw": raw}, &r)
	return r.Raw, err
}

// Dumped is what Kafka's dump tool printed.
type Dumped struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"` // findings
	Exit   int    `json:"exit"`
}

// Dump runs Kafka's dump tool on files.
func (d *Driver) Dump(files []string, flags ...string) (out Dumped, err error) {
	_, err = d.call("dump", map[string]any{"files": files, "flags": flags}, &out)
	return out, err
}

// Lock takes the lock of a log root as a broker does; false if somebody else has it.
func (d *Driver) Lock(root string) (bool, error) {
	var r struct{ Locked bool }
	_, err := d.call("lock", map[string]any{"root": root}, &r)
	return r.Locked, err
}

// Unlock gives it back; keepFile leaves .lock behind, as a kill does.
func (d *Driver) Unlock(root string, keepFile bool) error {
	_, err := d.call("unlock", map[string]any{"root": root, "keepFile": keepFile}, nil)
	return err
}
