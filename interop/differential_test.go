package interop

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// judge is our verdict on the same question [Driver.Validate] asks Kafka: "" or the reason.
func judge(b []byte, d *record.Decoder) (reason string) {
	batch, err := record.View(b)
	if err != nil {
		return err.Error()
	}
	if err := batch.Verify(); err != nil {
		return err.Error()
	}
	n := 0
	for _, err := range batch.Records(d) {
		if err != nil {
			return err.Error()
		}
		n++
	}
	if batch.Magic() == 2 && n != batch.Count() {
		return fmt.Sprintf("count %d but %d records", batch.Count(), n)
	}
	return ""
}

// stricter names the header rule of ours that refuses a batch which Kafka's parser takes, because Kafka applies the rule
// elsewhere (leader-side validation, recovery) or trusts the header. "" if none applies.
func stricter(b []byte) string {
	if len(b) <= atMagic || b[atMagic] > 2 {
		return ""
	}
	base := int64(binary.BigEndian.Uint64(b))
	if base < 0 {
		return "negative base offset"
	}
	if b[atMagic] < 2 {
		return stricterOldFormat(b)
	}
	if len(b) < atRecords {
		return ""
	}
	delta := int32(binary.BigEndian.Uint32(b[23:]))
	count := int32(binary.BigEndian.Uint32(b[atCount:]))
	switch {
	case delta < 0:
		return "negative last offset delta"
	case base+int64(delta) < 0 || base+int64(delta)+1 < 0:
		return "last offset beyond the largest"
	case int64(count) > int64(delta)+1:
		return "more records than offsets"
	}
	return ""
}

// stricterOldFormat: Kafka takes any negative length of a key or value for null and does not look behind the value.
func stricterOldFormat(b []byte) string {
	p := b[atMagic+2:]
	if b[atMagic] == 1 {
		p = p[min(8, len(p)):]
	}
	for range 2 {
		if len(p) < 4 {
			return ""
		}
		n := int32(binary.BigEndian.Uint32(p))
		if n < -1 {
			return "old format: a length below -1"
		}
		p = p[4:]
		if int64(n) > int64(len(p)) {
			return ""
		}
		p = p[max(n, 0):]
	}
	if len(p) > 0 {
		return "old format: bytes behind the value"
	}
	return ""
}

// rounds of a differential: a number in the environment for long runs.
func rounds(t *testing.T, name string, normal int) int {
	t.Helper()
	if s := os.Getenv(name); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	return normal
}

// compare lets both sides judge n mutations of the corpus and calls each for every one on which they differ.
func compare(t *testing.T, d *Driver, from [][]byte, n int, seed uint64, differ func(b []byte, ours, theirs string)) (accepted int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	dec := record.NewDecoder(record.Limits{})
	const perRequest = 2000
	for done := 0; done < n; {
		batches := make([][]byte, 0, perRequest)
		for len(batches) < perRequest && done < n {
			batches = append(batches, mutate(r, from[r.IntN(len(from))]))
			done++
		}
		theirs, err := d.Validate(batches)
		require.NoError(t, err)
		require.Len(t, theirs, len(batches))
		for i, b := range batches {
			ours := judge(b, dec)
			if theirs[i] == "" {
				accepted++
			}
			if (ours == "") != (theirs[i] == "") {
				differ(b, ours, theirs[i])
			}
		}
	}
	return accepted
}

func TestDecodersAgreeOnMutatedPlainBatches(t *testing.T) {
	_, d := kafka(t)
	plain, _ := corpus(t)
	n := rounds(t, "PARTLOG_INTEROP_MUTATIONS", 100_000)
	rules := map[string]int{}
	causes := map[string]int{}
	compressed := 0
	accepted := compare(t, d, plain, n, 1, func(b []byte, ours, theirs string) {
		if theirs == "" && stricter(b) != "" {
			rules[stricter(b)]++
			return
		}
		if compressedNow(b) {
			compressed++ // damage made a compressed batch of it; the other test is about those
			return
		}
		cause, _ := differenceCause(b, ours, theirs)
		if causes[cause]++; causes[cause] <= 2 {
			t.Errorf("%s\n%s", cause, hex.EncodeToString(b))
		}
	})
	t.Logf("%d batches, %d accepted by both; refused here by header rules: %v; turned into compressed: %d", n, accepted, rules, compressed)
	require.Empty(t, causes)
	require.Greater(t, accepted, n/50, "mutations are too harsh to mean anything")
}

func compressedNow(b []byte) bool {
	batch, err := record.View(b)
	return err == nil && batch.Codec() != record.None
}

// understood are the differences on compressed batches. All but the first are damage behind or beside the records that Kafka's
// libraries do not look at and ours refuse; none makes a record that Kafka serves unreadable here unless its batch was damaged
// first and given a fitting checksum.
var understood = []struct {
	codec        record.Codec
	ours, theirs string // part of the reason; "" accepts
	cause        string
}{
	{record.Gzip, "gzip: invalid header", "", "bytes behind the stream that begin no further member are ignored by Java"},
	{record.Gzip, "unexpected EOF", "", "bytes behind the stream that begin no further member are ignored by Java"},
	{record.LZ4, "follow the end mark", "", "bytes behind the frame are ignored by Kafka"},
	{record.LZ4, "the block does not decode", "", "a match at distance 0 is taken by the native library"},
	{record.LZ4, "a stored block of no bytes", "", "a stored block of no bytes is taken for the end mark"},
	{record.Snappy, "a block length is cut short", "", "less than a block's length behind the last block is ignored"},
	{record.Snappy, "stream version", "", "the version in the stream header is not looked at"},
	{record.Zstd, "zstd payload: ", "", "the native library does not notice damage behind the last sequence"},
}

// differenceCause is one of the understood causes, or ok is false and the text says what happened.
func differenceCause(b []byte, ours, theirs string) (cause string, ok bool) {
	batch, err := record.View(b)
	if err != nil {
		return fmt.Sprintf("no batch: ours %s; Kafka's %q", ours, theirs), false
	}
	codec := batch.Codec()
	switch {
	case theirs == "" && stricter(b) != "":
		return "header rule: " + stricter(b), true
	case ours == "" && batch.Magic() == 2 && batch.Count() == 0 && codec != record.None:
		return codec.String() + ": a batch of no records; Kafka opens the payload all the same", true
	case theirs == "" && batch.Magic() < 2 && codec != record.None && strings.Contains(ours, "message"):
		return "old format: the last inner message is cut short or longer than its fields", true
	}
	if theirs == "" && batch.Magic() < 2 && strings.Contains(ours, "inner offset") {
		return "header rule: old format: an inner offset below 0 or beyond the largest", true
	}
	for _, u := range understood {
		if codec == u.codec && ours != "" && strings.Contains(ours, u.ours) && theirs == u.theirs {
			return codec.String() + ": " + u.cause, true
		}
	}
	return fmt.Sprintf("magic %d %s: ours %q; Kafka's %q", batch.Magic(), codec,
		numbers.ReplaceAllString(ours, "#"), numbers.ReplaceAllString(theirs, "#")), false
}

// numbers are positions and sizes, which differ from case to case within one cause.
var numbers = regexp.MustCompile(`-?\b\d+\b|\b[0-9a-f]{8}\b`)

func TestDifferencesOnMutatedCompressedBatchesHaveKnownCauses(t *testing.T) {
	_, d := kafka(t)
	_, compressed := corpus(t)
	n := rounds(t, "PARTLOG_INTEROP_COMPRESSED", 30_000)
	causes := map[string]int{}
	accepted := compare(t, d, compressed, n, 2, func(b []byte, ours, theirs string) {
		cause, ok := differenceCause(b, ours, theirs)
		causes[cause]++
		if !ok && causes[cause] < 3 {
			t.Errorf("%s\n%s", cause, hex.EncodeToString(b))
		}
	})
	var list []string
	for c, k := range causes {
		list = append(list, fmt.Sprintf("%6d %s", k, c))
	}
	sort.Strings(list)
	t.Logf("%d batches, %d accepted by Kafka; differences by cause:\n%s", n, accepted, strings.Join(list, "\n"))
}
