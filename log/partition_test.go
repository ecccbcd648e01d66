package log

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const uuid = "0123456789abcdef0123456789abcdef"

func TestFolderNamesAreReadAsKafkaReadsThem(t *testing.T) {
	for name, row := range map[string]struct {
		tp    TopicPartition
		state folderState
	}{
		"orders-0":                           {TopicPartition{"orders", 0}, liveFolder},
		"t-00":                               {TopicPartition{"t", 0}, liveFolder},
		"a-b.c-3":                            {TopicPartition{"a-b.c", 3}, liveFolder},
		"a b-1":                              {TopicPartition{"a b", 1}, liveFolder},
		"t--5":                               {TopicPartition{"t-", 5}, liveFolder},
		"x-delete-2147483647":                {TopicPartition{"x-delete", 2147483647}, liveFolder},
		"__cluster_metadata-0":               {TopicPartition{"__cluster_metadata", 0}, liveFolder},
		"a-b.c-3." + uuid + "-delete":        {TopicPartition{"a-b.c", 3}, deletingFolder},
		"orders-1." + uuid + "-stray":        {TopicPartition{"orders", 1}, strayFolder},
		"orders-1." + uuid + "-future":       {TopicPartition{"orders", 1}, futureFolder},
		"orders-1.x-future":                  {TopicPartition{"orders", 1}, futureFolder},
		"t-0." + uuid + "-stray-0":           {TopicPartition{"t-0." + uuid + "-stray", 0}, liveFolder},
		"t-1.2-delete-3." + uuid + "-delete": {TopicPartition{"t-1.2-delete", 3}, deletingFolder},
	} {
		t.Run(name, func(t *testing.T) {
			tp, state, err := parseFolder(name)
			require.NoError(t, err)
			require.Equal(t, row.tp, tp)
			require.Equal(t, row.state, state)
			got, err := ParseTopicPartition(name)
			if state == liveFolder {
				require.NoError(t, err)
				require.Equal(t, row.tp, got)
			} else {
				require.ErrorContains(t, err, state.String())
			}
		})
	}
}

func TestForeignFolderNamesAreRefused(t *testing.T) {
	for _, name := range []string{"", "foo", "foo-bar", ".x", "lost+found", "t-", "-0", "-", "t-x", "t-0-stray", "t-0-delete", "t-0-future",
		"t-0.-delete", "t-0." + uuid + "-deleted", "a b-0." + uuid + "-delete", "t-2147483648", "t-1.5", "." + uuid + "-delete", "-0.u-delete",
		"t-.u-stray", "a/b-0", `a\b-0`, "t-0\x00", "t-1_0", "t-0x1"} {
		_, _, err := parseFolder(name)
		var bad *FolderError
		require.ErrorAs(t, err, &bad, "%q", name)
		require.ErrorIs(t, err, ErrNotLog)
		require.Equal(t, name, bad.Name)
		_, err = ParseTopicPartition(name)
		require.ErrorIs(t, err, ErrNotLog)
	}
}

func TestMarkedFoldersAreCutTo255CharactersButFutureOnesAreNot(t *testing.T) {
	long := TopicPartition{strings.Repeat("t", 249), 12}
	for state := deletingFolder; state <= strayFolder; state++ {
		name := long.markedFolder(state)
		require.Len(t, name, 255)
		tp, got, err := parseFolder(name)
		require.NoError(t, err)
		require.Equal(t, state, got)
		require.Equal(t, int32(12), tp.Partition)
		require.True(t, strings.HasPrefix(long.Topic, tp.Topic))
	}
	require.Greater(t, len(long.markedFolder(futureFolder)), 255)
	require.NotEqual(t, long.markedFolder(deletingFolder), long.markedFolder(deletingFolder))
	require.Equal(t, "t-3.000102030405060708090a0b0c0d0e0f-delete",
		TopicPartition{"t", 3}.markedFolderWith(deletingFolder, [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}))
}

func TestTopicNamesFollowKafkasRules(t *testing.T) {
	for _, tp := range []TopicPartition{{"a", 0}, {"A.b_c-9", 7}, {strings.Repeat("x", 249), 0}, {"...", 0}} {
		require.NoError(t, tp.Validate())
	}
	for _, tp := range []TopicPartition{{"", 0}, {".", 0}, {"..", 0}, {"a b", 0}, {"a/b", 0}, {"ä", 0}, {strings.Repeat("x", 250), 0}, {"a", -1}} {
		require.Error(t, tp.Validate(), "%v", tp)
	}
}

func TestEveryValidNameSurvivesItsFolder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := TopicPartition{rapid.StringMatching(`[a-zA-Z0-9._-]{3,60}`).Draw(t, "topic"), rapid.Int32Min(0).Draw(t, "partition")}
		got, err := ParseTopicPartition(tp.String())
		if err != nil || got != tp {
			t.Fatalf("%v became %v, %v", tp, got, err)
		}
		state := folderState(rapid.IntRange(1, 3).Draw(t, "state"))
		got, is, err := parseFolder(tp.markedFolder(state))
		if err != nil || got != tp || is != state {
			t.Fatalf("%v %v became %v %v, %v", tp, state, got, is, err)
		}
	})
}

func FuzzParseFolder(f *testing.F) {
	for _, seed := range []string{"orders-0", "a-b.c-3." + uuid + "-delete", "t-0-stray", ".-future", "-", "t-+1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		tp, state, err := parseFolder(name)
		if err != nil {
			require.ErrorIs(t, err, ErrNotLog)
			return
		}
		require.NotEmpty(t, tp.Topic)
		require.GreaterOrEqual(t, tp.Partition, int32(0))
		if state == liveFolder {
			again, err := ParseTopicPartition(tp.String())
			require.NoError(t, err)
			require.Equal(t, tp, again)
		}
	})
}
