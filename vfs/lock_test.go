package vfs

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary runs itself again as another process that wants the lock: mode, then directory.
const lockChildEnv = "VFS_LOCK_CHILD"

func TestMain(m *testing.M) {
	if mode, dir, ok := strings.Cut(os.Getenv(lockChildEnv), ":"); ok {
		os.Exit(lockChild(mode, dir))
	}
	os.Exit(m.Run())
}

// lockChild takes dir/.lock, prints what came of it, and holds it until its input ends.
func lockChild(mode, dir string) int {
	wait := func(answer string) {
		os.Stdout.WriteString(answer + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	if mode == "posix" {
		answer, release := posixLock(filepath.Join(dir, ".lock"))
		wait(answer)
		release()
		return 0
	}
	fsys, err := OS(dir)
	if err != nil {
		wait(err.Error())
		return 1
	}
	l, err := fsys.Lock(".lock")
	if err != nil {
		wait(err.Error())
		return 0
	}
	wait("locked")
	if mode == "kill" {
		return 0 // without closing
	}
	if err := l.Close(); err != nil {
		return 1
	}
	return 0
}

type child struct {
	answer string
	pid    int
	finish func()
}

func startChild(t *testing.T, mode, dir string) child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Skip("no other processes on this platform")
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), lockChildEnv+"="+mode+":"+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	if err := cmd.Start(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no other processes on this platform")
	} else {
		require.NoError(t, err)
	}
	answer, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	finish := sync.OnceFunc(func() {
		in.Close()
		require.NoError(t, cmd.Wait())
	})
	t.Cleanup(finish)
	return child{answer: strings.TrimSpace(answer), pid: cmd.Process.Pid, finish: finish}
}

func TestLockExcludesAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	fsys, err := OS(dir)
	require.NoError(t, err)
	l, err := fsys.Lock(".lock")
	require.NoError(t, err)
	c := startChild(t, "vfs", dir)
	require.Contains(t, c.answer, ".lock: locked by another owner")
	c.finish()
	require.NoError(t, l.Close())

	c = startChild(t, "vfs", dir)
	require.Equal(t, "locked", c.answer)
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, ErrLocked)
	c.finish()
	_, err = fsys.Stat(".lock")
	require.ErrorIs(t, err, fs.ErrNotExist, "removed at a clean stop")
}

func TestLockOfAKilledProcessIsFreeAndItsFileIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	fsys, err := OS(dir)
	require.NoError(t, err)
	c := startChild(t, "kill", dir)
	require.Equal(t, "locked", c.answer)
	c.finish()
	_, err = fsys.Stat(".lock")
	require.NoError(t, err, "left behind by a kill")
	l, err := fsys.Lock(".lock")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestLockIsSeenThroughOtherTreesOfThisProcess(t *testing.T) {
	dir := t.TempDir()
	a, err := OS(dir)
	require.NoError(t, err)
	b, err := OS(filepath.Dir(dir))
	require.NoError(t, err)
	l, err := a.Lock(".lock")
	require.NoError(t, err)
	for range 3 { // refused openers must not loosen it
		_, err = b.Lock(filepath.Base(dir) + "/.lock")
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, filepath.Join(dir, ".lock")+": locked by this process")
	}
	c := startChild(t, "vfs", dir)
	require.Contains(t, c.answer, "locked by")
	require.NoError(t, l.Close())
}

// The owner closes, which removes the file, between our opening it and our locking it.
func TestLockOfAFileThatWasRemovedMeanwhileIsGivenBack(t *testing.T) {
	fsys := osTree(t)
	for name, meanwhile := range map[string]func(){
		"removed": func() {},
		"replaced": func() {
			f, err := fsys.OpenFile(".lock", os.O_RDWR|os.O_CREATE, 0o644)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := openLock(fsys.(*osFS), ".lock")
			require.NoError(t, err)
			require.NoError(t, fsys.Remove(".lock"))
			meanwhile()
			ours, err := l.take()
			require.NoError(t, err)
			require.False(t, ours)
			again, err := fsys.Lock(".lock")
			require.NoError(t, err)
			require.NoError(t, again.Close())
		})
	}
}

// A closing owner removes the file while others hold it open: they must not end up with a lock on a removed file.
func TestOnlyOneOwnerAtATimeWhileOwnersComeAndGo(t *testing.T) {
	for name, fsys := range map[string]FS{"OS": osTree(t), "Mem": Mem()} {
		t.Run(name, func(t *testing.T) {
			var owners, taken atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for taken.Load() < 200 {
						l, err := fsys.Lock(".lock")
						if errors.Is(err, ErrLocked) {
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						if owners.Add(1) != 1 {
							t.Error("two owners")
						}
						taken.Add(1)
						owners.Add(-1)
						if err := l.Close(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	require.Empty(t, held.locks)
}
