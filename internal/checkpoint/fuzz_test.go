package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever the bytes, a parser returns a *FormatError or something that its own writer turns into text it reads back the
// same.

func FuzzOffsets(f *testing.F) {
	for _, seed := range []string{"", "0\n0\n", "0\n1\nt 1 5\n", "0\n2\na 0 1\na 0 2\n", "0\n1\n\xff -1 -5", "0\r\n1\r\nt 1 5\r\n", "0\n2147483647\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseOffsets("f", b)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		text, err := AppendOffsets(nil, got)
		require.NoError(t, err)
		again, err := ParseOffsets("f", text)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

func FuzzEpochs(f *testing.F) {
	for _, seed := range []string{"", "0\n0\n", "0\n2\n0 0\n1 5\n", "0\n1\n-1 5\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseEpochs("f", b)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		again, err := ParseEpochs("f", AppendEpochs(nil, got))
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

func FuzzTopicID(f *testing.F) {
	for _, seed := range []string{"", "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version: 0\ntopic_id: ==", "version\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := ParseTopicID("f", b)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		again, err := ParseID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, again)
		require.False(t, id.IsZero())
	})
}

func FuzzIdentity(f *testing.F) {
	for _, seed := range []string{"", "#\nversion=1\ncluster.id=c\nnode.id=4\n", "a\\\n\\", "version:0\nbroker.id 1\n", "k=\\u00", "=\n:\n \\u0041=x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := ParseIdentity("f", b)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		text, err := AppendIdentity(nil, id, time.Unix(0, 0))
		if err != nil { // a cluster id that is not plain text, a negative node id
			require.ErrorIs(t, err, ErrFormat)
			return
		}
		again, err := ParseIdentity("f", text)
		require.NoError(t, err)
		id.NodeID = max(id.NodeID, -1)
		require.Equal(t, id, again)
	})
}

func FuzzCleanMarker(f *testing.F) {
	for _, seed := range []string{"", `{"version":0,"brokerEpoch":307}`, `{"version":null}`, "[[[["} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, b []byte) { ParseCleanMarker(b) })
}
