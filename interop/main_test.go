package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// shared is the one driver most tests use: starting a JVM costs about a second.
var shared struct {
	once   sync.Once
	java   *Java
	driver *Driver
	err    error
}

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(runVictim())
	}
	code := m.Run()
	if shared.driver != nil {
		_ = shared.driver.Close()
	}
	if command.dir != "" {
		_ = os.RemoveAll(command.dir)
	}
	os.Exit(code)
}

// kafka is Kafka's JVM. Without Java the test is skipped with a reason; under CI=true it fails, since a proof that did
// not run is none.
func kafka(t *testing.T) (*Java, *Driver) {
	t.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if shared.java, shared.err = Find(ctx); shared.err == nil {
			shared.driver, shared.err = StartDriver(shared.java)
		}
	})
	if errors.Is(shared.err, ErrNoJava) && os.Getenv("CI") != "true" {
		t.Skip(fmt.Sprint(shared.err, "; nothing was compared with Kafka"))
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.java, shared.driver
}
