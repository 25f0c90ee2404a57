package hook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	exitNotRun = 125      // the run has another owner, or cannot be begun
	maxLine    = 64 << 10 // of what a hook prints
)

// SuperviseCommand is the command of bigfleet-agent that calls Supervise.
const SuperviseCommand = "supervise"

// Supervise is the main process of a run's unit: it runs the hook of the run in
// dir, prints what the hook prints, less the secrets, and records how it ended.
// It returns the exit status for the process.
//
// It goes on after a successful hook for as long as a daemon holds the hook's
// output, which would otherwise be killed by its next line.
func Supervise(dir string, stdout, stderr io.Writer) int {
	// The service manager's request to end is for the hook, which gets it too.
	// A journal that goes away must not end anything.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	defer signal.Stop(asked)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	s, err := take(dir)
	if err == nil {
		err = s.run(asked, stdout, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bigfleet-agent supervise:", err) // nowhere else to say it
		return exitNotRun
	}
	return s.status
}

// supervision is a run in the hands of its supervisor.
type supervision struct {
	job    Job
	redact *Redactor
	tail   tail // of standard error
	status int
}

// take makes the caller the owner of the run in dir.
func take(dir string) (*supervision, error) {
	file, err := os.Open(jobPath(dir))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if ours, err := claim(dir); err != nil || !ours {
		return nil, errors.Join(errors.New("the run has another owner"), err)
	}
	s := &supervision{}
	if err := json.NewDecoder(file).Decode(&s.job); err != nil {
		return nil, err
	}
	var blob []byte
	if s.job.Stdin != "" {
		if blob, err = os.ReadFile(s.job.Stdin); err != nil {
			return nil, err
		}
	}
	s.redact = NewRedactor(s.job.Token, blob)
	return s, nil
}

// run runs the hook to its end. It relays the output of a hook that succeeded to
// that output's end. What a failed one leaves does not keep it: the service
// manager kills that when this process ends.
func (s *supervision) run(asked <-chan os.Signal, stdout, stderr io.Writer) error {
	out, outErr := s.stream(stdout, nil)
	said, saidErr := s.stream(stderr, &s.tail)
	if err := errors.Join(outErr, saidErr); err != nil {
		return err
	}
	cmd, err := s.start(out.pipe, said.pipe)
	if closeErr := errors.Join(out.pipe.Close(), said.pipe.Close()); closeErr != nil {
		return closeErr
	}
	if err != nil {
		// As a shell reports it: the hook is there, but cannot be executed.
		s.tail.add([]byte(err.Error()))
		s.status = 126
		return s.record(stderr)
	}
	s.status = s.await(cmd, asked, stderr)
	// The last lines may still be in the pipe. Who holds it does not delay the
	// result for long.
	select {
	case <-said.ended:
	case <-time.After(drainWait):
	}
	if err := s.record(stderr); err != nil {
		return err
	}
	if s.status != 0 {
		select {
		case <-out.ended:
		case <-time.After(drainWait):
		}
		return nil
	}
	<-out.ended
	<-said.ended
	return nil
}

// stream is one of the hook's outputs.
type stream struct {
	pipe  *os.File      // the hook's end
	ended chan struct{} // nobody holds the hook's end
}

// stream relays what comes to its pipe to w, and keeps the end in tail if that
// is not nil.
func (s *supervision) stream(w io.Writer, tail *tail) (stream, error) {
	r, pipe, err := os.Pipe()
	if err != nil {
		return stream{}, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer r.Close()
		s.relay(r, w, tail)
	}()
	return stream{pipe, ended}, nil
}

// start starts the hook.
func (s *supervision) start(stdout, stderr *os.File) (*exec.Cmd, error) {
	// No context: the service manager ends it.
	cmd := exec.Command(s.job.Path, string(s.job.Verb)) //nolint:noctx // see above
	cmd.Env, cmd.Dir = s.job.Env, "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if s.job.Stdin != "" {
		stdin, err := os.Open(s.job.Stdin)
		if err != nil {
			return nil, err
		}
		defer stdin.Close()
		cmd.Stdin = stdin
	}
	err := cmd.Start()
	return cmd, err
}

// await waits for the hook. One that is asked to end may be killed at any
// moment, with its supervisor: from then on its words are saved as they come.
func (s *supervision) await(cmd *exec.Cmd, asked <-chan os.Signal, stderr io.Writer) int {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // told by ProcessState
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	saved := false
	for {
		select {
		case <-ended:
			return exitStatus(cmd.ProcessState)
		case <-asked:
			saved = true
		case <-tick.C:
		}
		if !saved {
			continue
		}
		if err := writeOutcome(s.job, s.tail.String()); err != nil {
			_, _ = fmt.Fprintln(stderr, "bigfleet-agent supervise:", err) // the end is recorded all the same
		}
	}
}

// exitStatus is what a shell makes of a process's end.
func exitStatus(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// record makes the end of the hook known to this and later agents.
func (s *supervision) record(stderr io.Writer) error {
	if s.status != 0 {
		if err := writeOutcome(s.job, s.tail.String()); err != nil {
			_, _ = fmt.Fprintln(stderr, "bigfleet-agent supervise:", err) // a failure without its reason is one all the same
		}
	}
	// Written over what was reserved: a tmpfs that is full by now has room for it.
	file, err := os.OpenFile(reservedPath(s.job), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strconv.Itoa(s.status) + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(reservedPath(s.job), statusPath(s.job))
}

// relay copies lines from r to w without their secrets until nobody holds the
// other end of r.
func (s *supervision) relay(r io.Reader, w io.Writer, tail *tail) {
	lines := bufio.NewReaderSize(r, maxLine)
	out := bufio.NewWriterSize(w, maxLine)
	for {
		if lines.Buffered() == 0 {
			_ = out.Flush() // a journal that is away loses lines, not hooks
		}
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			// Half a line could be half a secret, which no pattern matches.
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = []byte(unbroken)
		}
		if len(line) > 0 {
			text := []byte(s.redact.Redact(strings.ToValidUTF8(string(bytes.TrimRight(line, "\n")), "?")))
			_, _ = out.Write(append(text, '\n')) // its error is that of every Flush
			if tail != nil {
				tail.add(text)
			}
		}
		if err != nil {
			_ = out.Flush() // see above
			return
		}
	}
}

// tail keeps the last lines that were added to it.
type tail struct {
	mu    sync.Mutex
	lines [][]byte
}

func (t *tail) add(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	t.lines = t.lines[max(0, len(t.lines)-tailLines):]
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLines(string(bytes.Join(t.lines, []byte("\n"))))
}
