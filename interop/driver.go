package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
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
type Driver struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *tail
	cancel context.CancelFunc

	mu   sync.Mutex // one request on the pipe
	dead error      // why no more requests are possible
}

// StartDriver starts the JVM; it ends with Close, with Kill, or when this process does.
func StartDriver(j *Java) (*Driver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := j.Command(ctx, nil, "partlog.Driver")
	in, err := c.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	d := &Driver{cmd: c, in: in, out: bufio.NewReaderSize(out, 1<<16), stderr: &tail{}, cancel: cancel}
	c.Stderr = d.stderr
	if err := c.Start(); err != nil {
		cancel()
		return nil, err
	}
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

// Kill ends the JVM as power loss would: no shutdown code of Kafka runs.
func (d *Driver) Kill() {
	_ = d.cmd.Process.Kill()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail(errors.New("interop: the driver was killed"))
}

// Close ends the JVM; logs still open in it stay as after a kill.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead == nil {
		d.fail(errors.New("interop: the driver is closed"))
	}
	return nil
}

// fail ends the process and makes every later call fail with err. The caller holds mu.
func (d *Driver) fail(err error) {
	if d.dead != nil {
		return
	}
	d.dead = err
	_ = d.in.Close()
	ended := time.AfterFunc(5*time.Second, d.cancel)
	_ = d.cmd.Wait()
	ended.Stop()
	d.cancel()
}

// call sends one command and decodes its answer into out (nil: ignored). args is a struct or map that encodes to a JSON
// object. It returns what Kafka logged while the command ran.
func (d *Driver) call(cmd string, args, out any) ([]string, error) {
	request, err := request(cmd, args)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead != nil {
		return nil, d.dead
	}
	stuck := time.AfterFunc(3*time.Minute, func() { _ = d.cmd.Process.Kill() })
	defer stuck.Stop()
	if _, err := d.in.Write(request); err != nil {
		d.fail(fmt.Errorf("interop: the driver is gone: %w\n%s", err, d.stderr))
		return nil, d.dead
	}
	line, err := d.out.ReadBytes('\n')
	if err != nil {
		d.fail(fmt.Errorf("interop: the driver gave no answer to %s: %w\n%s", cmd, err, d.stderr))
		return nil, d.dead
	}
	var answer struct {
		OK    json.RawMessage
		Error *KafkaError
		Log   []string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("interop: answer to %s: %w", cmd, err)
	}
	if answer.Error != nil {
		answer.Error.Command = cmd
		answer.Error.Log = answer.Log
		return answer.Log, answer.Error
	}
	if out != nil {
		if err := json.Unmarshal(answer.OK, out); err != nil {
			return answer.Log, fmt.Errorf("interop: answer to %s: %w", cmd, err)
		}
	}
	return answer.Log, nil
}

func request(cmd string, args any) ([]byte, error) {
	b := []byte(`{"cmd":"` + cmd + `"`)
	if args != nil {
		a, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		if len(a) > 2 {
			b = append(append(b, ','), a[1:len(a)-1]...)
		}
	}
	return append(b, '}', '\n'), nil
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

// tail keeps the last part of what a process printed.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 1<<20 {
		t.b = append(t.b[:0], t.b[len(t.b)-1<<19:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
