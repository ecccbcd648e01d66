package placement

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectorBroker is a broker in the vectors.
type vectorBroker struct {
	ID     int32   `json:"id"`
	Rack   *string `json:"rack"`
	Fenced bool    `json:"fenced"`
}

type vector struct {
	Case              int             `json:"case"`
	Brokers           []vectorBroker  `json:"brokers"`
	Partitions        int             `json:"partitions"`
	ReplicationFactor int             `json:"replicationFactor"`
	FirstPartition    int             `json:"firstPartition"`
	StartIndex        int             `json:"startIndex"`
	Shift             int             `json:"shift"`
	StartOffsets      []vectorOffsets `json:"startOffsets"`
	StartRack         int             `json:"startRack"`
	Shuffles          [][]vectorRack  `json:"shuffles"`
	Assignment        [][]int32       `json:"assignment"`
	Error             string          `json:"error"`
}

type vectorOffsets struct {
	Rack     *string `json:"rack"`
	Unfenced int     `json:"unfenced"`
	Fenced   int     `json:"fenced"`
}

type vectorRack struct {
	Rack     *string `json:"rack"`
	Unfenced []int32 `json:"unfenced"`
	Fenced   []int32 `json:"fenced"`
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (v vector) request() Request {
	return Request{Partitions: v.Partitions, ReplicationFactor: v.ReplicationFactor, FirstPartition: v.FirstPartition}
}

func (v vector) brokers() (out []Broker) {
	for _, b := range v.Brokers {
		out = append(out, Broker{ID: b.ID, Rack: text(b.Rack), Fenced: b.Fenced})
	}
	return out
}

func vectors(t *testing.T, file string, want int) (out []vector) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		require.NoError(t, json.Unmarshal(lines.Bytes(), &v))
		out = append(out, v)
	}
	require.Len(t, out, want)
	return out
}

// recorded replays what was random in a vector.
type recorded struct {
	t *testing.T
	v vector
	n int // shuffles used
}

func (d *recorded) StartOffsets(s Stripe) (unfenced, fenced int) {
	for _, o := range d.v.StartOffsets {
		if text(o.Rack) == s.Rack {
			return o.Unfenced, o.Fenced
		}
	}
	d.t.Fatalf("case %d has no start offsets for rack %q", d.v.Case, s.Rack)
	return 0, 0
}

func (d *recorded) StartRack(int) int { return d.v.StartRack }

func (d *recorded) Shuffle(stripes []Stripe) {
	if d.n >= len(d.v.Shuffles) {
		d.t.Fatalf("case %d: one shuffle too many", d.v.Case)
	}
	require.Len(d.t, stripes, len(d.v.Shuffles[d.n]))
	for i, r := range d.v.Shuffles[d.n] {
		stripes[i] = Stripe{text(r.Rack), slices.Clone(r.Unfenced), slices.Clone(r.Fenced)}
	}
	d.n++
}

func TestStaggeredGivesKafkasAnswers(t *testing.T) {
	for _, file := range []string{"staggered.jsonl", "staggered-racks.jsonl"} {
		refused := 0
		for _, v := range vectors(t, file, 300) {
			got, err := Staggered(v.brokers(), v.request(), Start{Index: v.StartIndex, Shift: v.Shift})
			if v.Error != "" {
				require.Error(t, err, "%s case %d", file, v.Case)
				refused++
				continue
			}
			require.NoError(t, err, "%s case %d", file, v.Case)
			require.Equal(t, v.Assignment, got, "%s case %d", file, v.Case)
		}
		t.Logf("%s: %d refused", file, refused)
	}
}

func TestStripedGivesKafkasAnswers(t *testing.T) {
	shuffles, refused := 0, 0
	for _, v := range vectors(t, "striped.jsonl", 200) {
		d := &recorded{t: t, v: v}
		got, err := Striped(v.brokers(), v.request(), d)
		if v.Error != "" {
			require.Error(t, err, "case %d", v.Case)
			refused++
			continue
		}
		require.NoError(t, err, "case %d", v.Case)
		require.Equal(t, v.Assignment, got, "case %d", v.Case)
		require.Len(t, v.Shuffles, d.n, "case %d", v.Case)
		shuffles += d.n
	}
	require.Positive(t, shuffles)
	require.Positive(t, refused)
}

// Scenario: Z004.
func TestEachRefusalHasItsName(t *testing.T) {
	three := []Broker{{ID: 1}, {ID: 2}, {ID: 3}}
	for _, c := range []struct {
		what    string
		brokers []Broker
		r       Request
		want    error
	}{
		{"no partitions", three, Request{0, 1, 0}, ErrPartitions},
		{"negative partitions", three, Request{-1, 1, 0}, ErrPartitions},
		{"no replicas", three, Request{1, 0, 0}, ErrReplicationFactor},
		{"more replicas than brokers", three, Request{1, 4, 0}, ErrNotEnoughBrokers},
		{"no brokers", nil, Request{1, 1, 0}, ErrNotEnoughBrokers},
		{"a negative first partition", three, Request{1, 1, -1}, ErrStartOutOfSequence},
		{"a broker twice", []Broker{{ID: 1}, {ID: 1}}, Request{1, 1, 0}, ErrDuplicateBroker},
		{"racks for some", []Broker{{ID: 1, Rack: "a"}, {ID: 2}}, Request{1, 1, 0}, ErrSomeWithoutRack},
		{"fenced brokers only", []Broker{{ID: 1, Fenced: true}}, Request{1, 1, 0}, ErrAllFenced},
	} {
		_, staggered := Staggered(c.brokers, c.r, Start{})
		_, striped := Striped(c.brokers, c.r, &still{})
		switch {
		case errors.Is(c.want, ErrAllFenced):
			require.NoError(t, staggered, c.what)
			require.ErrorIs(t, striped, c.want, c.what)
		case errors.Is(c.want, ErrSomeWithoutRack):
			require.ErrorIs(t, staggered, c.want, c.what)
			require.NoError(t, striped, c.what)
		case c.brokers == nil:
			require.ErrorIs(t, staggered, c.want, c.what)
			require.ErrorIs(t, striped, ErrAllFenced, c.what)
		default:
			require.ErrorIs(t, staggered, c.want, c.what)
			require.ErrorIs(t, striped, c.want, c.what)
		}
	}
}
