package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Scenario: U124, U125. The id is on the device when SetTopicID returns, and stays over a stop of any kind.
func TestATopicIDIsOnTheDeviceOnceAssigned(t *testing.T) {
	b := newBed(t, Config{})
	require.Zero(t, b.TopicID())
	id := [16]byte{1, 2, 3, 15: 9}
	require.NoError(t, b.SetTopicID(id))
	require.Equal(t, id, b.TopicID())
	raw, err := vfs.ReadFile(b.fs, "t-0/partition.metadata", 1000)
	require.NoError(t, err)
	require.Equal(t, "version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAACQ", string(raw))
	b.reopen()
	require.Equal(t, id, b.TopicID())
	require.NoError(t, b.SetTopicID(id), "again")
}

func TestATopicIDIsGivenOnce(t *testing.T) {
	b := newBed(t, Config{})
	require.ErrorIs(t, b.SetTopicID([16]byte{}), ErrTopicID)
	require.NoError(t, b.SetTopicID([16]byte{1}))
	err := b.SetTopicID([16]byte{2})
	other := (*TopicIDError)(nil)
	require.ErrorAs(t, err, &other)
	require.ErrorIs(t, err, ErrTopicID)
	require.Equal(t, TopicIDError{Have: [16]byte{1}, Given: [16]byte{2}}, *other)
	require.Equal(t, [16]byte{1}, b.TopicID())
	require.NoError(t, b.dir.Close())
	require.ErrorIs(t, b.SetTopicID([16]byte{1}), ErrClosed)
}

func TestATopicIDThatCannotBeWrittenIsNotThere(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	fault.SetQuota(0)
	require.ErrorIs(t, b.SetTopicID([16]byte{1}), ErrNoSpace)
	require.Zero(t, b.TopicID())
	fault.SetQuota(-1)
	require.NoError(t, b.SetTopicID([16]byte{1}))
}
