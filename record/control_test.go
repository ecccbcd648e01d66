package record

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Scenario: D017
func TestEndMarkersReadBack(t *testing.T) {
	for _, commit := range []bool{true, false} {
		b := Marker(commit, Producer{ID: 9809, Epoch: 15, BaseSequence: 77}, 7, time.UnixMilli(123))
		require.NoError(t, b.Verify())
		require.True(t, b.Control() && b.Transactional())
		require.Equal(t, 1, b.Count())
		require.Equal(t, int64(123), b.MaxTimestamp())
		id, epoch, sequence := b.Producer()
		require.Equal(t, []int64{9809, 15, -1}, []int64{id, int64(epoch), int64(sequence)})
		records := collect(t, b)
		require.Len(t, records, 1)
		m, err := ParseMarker(records[0])
		require.NoError(t, err)
		want := EndMarker{Type: Abort, CoordinatorEpoch: 7}
		if commit {
			want.Type = Commit
		}
		require.Equal(t, want, m)
	}
	require.Equal(t, int64(0), Marker(true, Producer{}, 0, time.Time{}).MaxTimestamp())
	for _, nobody := range []Producer{{ID: -1}, {ID: 1, Epoch: -1}} {
		_, err := NewDecoder(Limits{}).Validate(Marker(true, nobody, 0, timeOf(now)).Bytes(), ValidateOptions{Origin: Coordinator, Now: now})
		require.ErrorIs(t, err, ErrInvalidRecord)
	}
}

// Scenario: D017
func TestMarkerVersionsAndShortValues(t *testing.T) {
	for name, row := range map[string]struct {
		key, value string
		want       EndMarker
		ok         bool
	}{
		"newer version, longer":    {"0005 0001 00", "0007 00000009 ff", EndMarker{Commit, 9}, true},
		"negative value version":   {"0000 0001", "ffff 00000009", EndMarker{Commit, -1}, false},
		"short value":              {"0000 0001", "0000 000000", EndMarker{Commit, -1}, false},
		"null value":               {"0000 0000", "", EndMarker{Abort, -1}, false},
		"another type":             {"0000 0002", "0000 00000009", EndMarker{LeaderChange, -1}, false},
		"short key":                {"0000 00", "0000 00000009", EndMarker{UnknownControl, -1}, false},
		"negative key version":     {"ffff 0001", "0000 00000009", EndMarker{UnknownControl, -1}, false},
		"unknown type":             {"0000 0151", "0000 00000009", EndMarker{UnknownControl, -1}, false},
		"unknown type, as Kafka's": {"0005 ffff 0000", "0000 00000009", EndMarker{UnknownControl, -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := ParseMarker(Record{Key: unhex(row.key), Value: unhex(row.value)})
			require.Equal(t, row.want, m)
			if row.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrInvalidRecord)
			}
		})
	}
}

// Scenario: D018
func TestControlTypesParse(t *testing.T) {
	names := []string{"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}
	for i, name := range names {
		got, err := ParseControl([]byte{0, 0, 0, byte(i)})
		require.NoError(t, err)
		require.Equal(t, ControlType(i), got)
		require.Equal(t, name, got.String())
	}
	for _, key := range []string{"0000 0007", "0000 0151", "0005 0151 00000000", "0000 8000"} {
		got, err := ParseControl(unhex(key))
		require.NoError(t, err, "ignored by readers, not an error")
		require.Equal(t, UnknownControl, got)
		require.Equal(t, "UNKNOWN", got.String())
	}
}
