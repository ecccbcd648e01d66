package record_test

import (
	"fmt"

	"github.com/partlog/partlog/record"
)

// A builder makes one batch; whoever appends it gives it its place, and the checksum stays right.
func ExampleBuilder() {
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Zstd})
	for _, value := range []string{"one", "two"} {
		if err := b.Add(record.Record{Timestamp: 1_700_000_000_000, Value: []byte(value)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	batch, err := b.Finish()
	if err != nil {
		fmt.Println(err)
		return
	}
	batch.SetBaseOffset(4711)
	batch.SetLeaderEpoch(3)
	fmt.Println(batch.BaseOffset(), batch.LastOffset(), batch.LeaderEpoch(), batch.Codec(), batch.Verify())
	// Output: 4711 4712 3 zstd <nil>
}

// A region of a .log file is whole batches, and perhaps the start of one more.
func ExampleNext() {
	var region []byte
	b := record.NewBuilder(record.BuilderOptions{})
	for offset, value := range []string{"one", "two", "three"} {
		b.SetBaseOffset(int64(offset))
		if err := b.Add(record.Record{Timestamp: 1, Value: []byte(value)}); err != nil {
			fmt.Println(err)
			return
		}
		batch, err := b.Finish()
		if err != nil {
			fmt.Println(err)
			return
		}
		region = append(region, batch.Bytes()...)
		b.Reset()
	}
	region = region[:len(region)-1]

	d := record.NewDecoder(record.Limits{})
	for {
		batch, rest, err := record.Next(region)
		if err != nil {
			fmt.Println(err) // record.ErrIncomplete: the normal end
			return
		}
		if err := batch.Verify(); err != nil {
			fmt.Println(err)
			return
		}
		for rec, err := range batch.Records(d) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%d %s\n", rec.Offset, rec.Value)
		}
		region = rest
	}
	// Output:
	// 0 one
	// 1 two
	// record: incomplete batch
}
