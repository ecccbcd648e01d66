package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// sources holds the pom, the log configuration and the Java code.
//
//go:embed java
var sources embed.FS

// ErrNoJava is returned by [Find] when this machine cannot run Kafka; the message says what is missing.
var ErrNoJava = errors.New("interop: no Java to run Kafka with")

const classpathGoal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"

// Java is a JVM with Kafka and the compiled driver on its class path.
type Java struct {
	bin       string // the java program
	classpath string
	cache     string // where the compiled classes lie; a place for class data archives
	base      string // of all that is kept
}

// Find locates java, javac and mvn, resolves Kafka from Maven Central and compiles the driver. What it makes is kept in
// the user's cache directory under a name made of the content hashes, so a second call takes milliseconds and needs
// neither Maven nor javac. The error is [ErrNoJava] if a program is missing.
func Find(ctx context.Context) (*Java, error) {
	bin, err := program("java")
	if err != nil {
		return nil, err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = filepath.Join(os.TempDir(), "cache")
	}
	base = filepath.Join(base, "partlog-interop")
	jars, err := resolve(ctx, base, "java/pom.xml")
	if err != nil {
		return nil, err
	}
	cache, err := compile(ctx, base, jars)
	if err != nil {
		return nil, err
	}
	list := string(os.PathListSeparator)
	return &Java{bin: bin, classpath: filepath.Join(cache, "classes") + list + filepath.Join(cache, "java") + list + jars, cache: cache, base: base}, nil
}

// Classic is the class path of the last Kafka of ZooKeeper's time, which nothing but its own class loader knows.
func (j *Java) Classic(ctx context.Context) (string, error) {
	return resolve(ctx, j.base, "java/classic.xml")
}

// Command prepares java with the class path set; small heap, quick to start, and gone when ctx ends.
func (j *Java) Command(ctx context.Context, options []string, main string, args ...string) *exec.Cmd {
	argv := append([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx768m"}, options...)
	argv = append(argv, "-cp", j.classpath, main)
	return exec.CommandContext(ctx, j.bin, append(argv, args...)...)
}

func program(name string) (string, error) {
	exe := name
	if runtime.GOOS == "windows" && name != "mvn" {
		exe += ".exe"
	}
	if home := os.Getenv("JAVA_HOME"); home != "" && name != "mvn" {
		p := filepath.Join(home, "bin", exe)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s is not on the PATH (Java 17 with javac, and Maven, are needed)", ErrNoJava, name)
	}
	return p, nil
}

// resolve is the class path that a pom asks for, from the cache while all of the jars still exist.
func resolve(ctx context.Context, base, name string) (string, error) {
	pom, err := sources.ReadFile(name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "jars-"+hash(pom))
	kept := filepath.Join(dir, "classpath")
	if b, err := os.ReadFile(kept); err == nil && allExist(string(b)) {
		return string(b), nil
	}
	mvn, err := program("mvn")
	if err != nil {
		return "", err
	}
	tmp, err := scratch(base)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return "", err
	}
	if err := run(exec.CommandContext(ctx, mvn, "-q", "-B", "-f", filepath.Join(tmp, "pom.xml"), classpathGoal,
		"-Dmdep.outputFile="+filepath.Join(tmp, "classpath"))); err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(tmp, "classpath"))
	if err != nil {
		return "", err
	}
	jars := strings.TrimSpace(string(b))
	if err := os.WriteFile(filepath.Join(tmp, "classpath"), []byte(jars), 0o644); err != nil {
		return "", err
	}
	os.RemoveAll(dir)
	if err := os.Rename(tmp, dir); err != nil && !allExist(jars) {
		return "", err
	}
	return jars, nil
}

// compile is the folder that holds java/ (the sources and the log configuration) and classes/.
func compile(ctx context.Context, base, jars string) (string, error) {
	var all bytes.Buffer
	var names []string
	err := fs.WalkDir(sources, "java", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := sources.ReadFile(p)
		fmt.Fprintf(&all, "%s %d\n%s", p, len(b), b)
		names = append(names, p)
		return err
	})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "classes-"+hash(all.Bytes()))
	if _, err := os.Stat(filepath.Join(dir, "classes")); err == nil {
		return dir, nil
	}
	javac, err := program("javac")
	if err != nil {
		return "", err
	}
	tmp, err := scratch(base)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	argv := []string{"-nowarn", "-d", filepath.Join(tmp, "classes"), "-cp", jars}
	for _, p := range names {
		b, err := sources.ReadFile(p)
		if err != nil {
			return "", err
		}
		to := filepath.Join(tmp, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return "", err
		}
		if strings.HasSuffix(to, ".java") {
			argv = append(argv, to)
		}
	}
	if err := run(exec.CommandContext(ctx, javac, argv...)); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, other := os.Stat(filepath.Join(dir, "classes")); other != nil {
			return "", err
		}
	}
	return dir, nil
}

func scratch(base string) (string, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(base, "making-")
}

func run(c *exec.Cmd) error {
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("interop: %s: %w\n%s", filepath.Base(c.Path), err, out)
	}
	return nil
}

func allExist(classpath string) bool {
	if classpath == "" {
		return false
	}
	for _, p := range filepath.SplitList(classpath) {
		if _, err := os.Stat(p); err != nil {
			return false
		}
	}
	return true
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
