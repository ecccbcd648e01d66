package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// pipe is a process that answers one line of JSON on standard output for every line on its standard input.
type pipe struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *tail

	mu   sync.Mutex // one request on the pipe
	dead error      // why no more requests are possible
}

// answerTimeout is how long one command may take before the process is taken for stuck and killed.
const answerTimeout = 3 * time.Minute

func startPipe(c *exec.Cmd) (*pipe, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &pipe{cmd: c, in: in, out: bufio.NewReaderSize(out, 1<<16), stderr: &tail{}}
	c.Stderr = p.stderr
	return p, c.Start()
}

// Kill ends the process on the spot: none of its shutdown code runs. A command that is running fails.
func (p *pipe) Kill() {
	_ = p.cmd.Process.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(errors.New("interop: the process was killed"))
}

// Close ends the process; logs still open in it stay as after a kill.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(errors.New("interop: the process is closed"))
	return nil
}

// fail ends the process and makes every later call fail with err. The caller holds mu.
func (p *pipe) fail(err error) {
	if p.dead != nil {
		return
	}
	p.dead = err
	_ = p.in.Close()
	stuck := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	stuck.Stop()
}

// call sends one command and decodes its answer into out (nil: ignored). args is a struct or map that encodes to a JSON
// object. It returns what the process logged while the command ran.
func (p *pipe) call(cmd string, args, out any) ([]string, error) {
	request, err := request(cmd, args)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead != nil {
		return nil, p.dead
	}
	stuck := time.AfterFunc(answerTimeout, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	if _, err := p.in.Write(request); err != nil {
		p.fail(fmt.Errorf("interop: %s: the process is gone: %w\n%s", cmd, err, p.stderr))
		return nil, p.dead
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.fail(err) // waits, and has all that was printed
		p.dead = fmt.Errorf("interop: %s: no answer: %w, %v\n%s", cmd, err, p.cmd.ProcessState, p.stderr)
		return nil, p.dead
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
	return strings.TrimSpace(string(t.b[max(0, len(t.b)-4000):]))
}
