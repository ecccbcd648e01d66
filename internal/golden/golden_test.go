package golden

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryCaseIsCompleteAndCopiesToTheSizesKafkaLeft(t *testing.T) {
	require.Len(t, Cases(), 28)
	for _, name := range Cases() {
		t.Run(name, func(t *testing.T) {
			about := About(t, name)
			require.Equal(t, name, about.Case)
			require.NotEmpty(t, about.AsOpened.Segments)
			root := Copy(t, name)
			for file, facts := range about.Files {
				info, err := os.Stat(filepath.Join(root, filepath.FromSlash(file)))
				require.NoError(t, err)
				require.Equal(t, facts.Size, info.Size(), file)
			}
			dir, err := PartitionDir(root)
			require.NoError(t, err)
			require.Equal(t, about.Topic+"-0", filepath.Base(dir))

			rs := MustRecords(t, name)
			require.Len(t, rs, about.Consumer["records.jsonl"].Records)
			require.Len(t, MustCommitted(t, name), about.Consumer["committed.jsonl"].Records)
			for i := 1; i < len(rs); i++ {
				require.Greater(t, rs[i].Offset, rs[i-1].Offset)
			}
			_, err = os.Stat(filepath.Join(root, ".kafka_cleanshutdown"))
			require.Equal(t, about.StoppedClean, err == nil)
		})
	}
}

func TestNullAndEmptyFieldsStayApart(t *testing.T) {
	null, empty := Record{}, Record{Key: []byte{}, Value: []byte{}}
	require.True(t, null.MatchesKey(nil))
	require.False(t, null.MatchesKey([]byte{}))
	require.True(t, empty.MatchesValue([]byte{}))
	require.False(t, empty.MatchesValue(nil))
	var seenNull, seenEmpty bool
	for _, r := range MustRecords(t, "headers-nulls") {
		for _, h := range r.Headers {
			seenNull = seenNull || h.Value == nil
			seenEmpty = seenEmpty || h.Value != nil && len(h.Value) == 0
		}
	}
	require.True(t, seenNull, "a null header value")
	require.True(t, seenEmpty, "an empty header value")
}

func TestUnknownCaseIsAnError(t *testing.T) {
	_, err := AboutOf("no-such-case")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Error(t, Into(t.TempDir(), "no-such-case"))
}

// What an importer of the library links must not carry four megabytes of test data.
func TestNoProductCodeImportsTheFolders(t *testing.T) {
	forTests := map[string]bool{"interop": true, "examples": true, "testdata": true, ".git": true}
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && forTests[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imported := range file.Imports {
			require.NotEqual(t, `"github.com/partlog/partlog/internal/golden"`, imported.Path.Value, path)
		}
		return nil
	}))
}
