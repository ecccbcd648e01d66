package record

import (
	"fmt"
	"testing"
)

// hundred is a batch of 100 records of 16 + 100 bytes.
func hundred(b *testing.B, c Codec) Batch {
	builder := NewBuilder(BuilderOptions{Codec: c})
	if err := addHundred(builder); err != nil {
		b.Fatal(err)
	}
	batch, err := builder.Finish()
	if err != nil {
		b.Fatal(err)
	}
	return batch
}

func addHundred(builder *Builder) error {
	r := Record{Timestamp: now, Key: make([]byte, 16), Value: make([]byte, 100)}
	for range 100 {
		if err := builder.Add(r); err != nil {
			return err
		}
	}
	return nil
}

func BenchmarkBuild(b *testing.B) {
	for _, c := range allCodecs {
		b.Run(c.String(), func(b *testing.B) {
			b.ReportAllocs()
			builder := NewBuilder(BuilderOptions{Codec: c})
			b.SetBytes(100 * 116)
			for b.Loop() {
				builder.Reset()
				if err := addHundred(builder); err != nil {
					b.Fatal(err)
				}
				if _, err := builder.Finish(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkIterate(b *testing.B) {
	for _, c := range allCodecs {
		b.Run(c.String(), func(b *testing.B) {
			b.ReportAllocs()
			batch := hundred(b, c)
			d := NewDecoder(Limits{})
			b.SetBytes(100 * 116)
			for b.Loop() {
				for _, err := range batch.Records(d) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	b.ReportAllocs()
	batch := hundred(b, None)
	b.SetBytes(int64(batch.Size()))
	for b.Loop() {
		if err := batch.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, target := range []Codec{None, LZ4} {
		b.Run(fmt.Sprint("none to ", target), func(b *testing.B) {
			b.ReportAllocs()
			raw := hundred(b, None).Bytes()
			d := NewDecoder(Limits{})
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := d.Validate(raw, ValidateOptions{Codec: target, Now: now, TimestampBefore: -1, TimestampAfter: -1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAddRef(b *testing.B) {
	b.ReportAllocs()
	builder := NewBuilder(BuilderOptions{})
	records := make([]Record, 100)
	for i := range records {
		records[i] = Record{Key: make([]byte, 16), Value: make([]byte, 100)}
	}
	b.SetBytes(100 * 116)
	for b.Loop() {
		builder.Reset()
		for i := range records {
			if err := builder.AddRef(&records[i], now); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := builder.Finish(); err != nil {
			b.Fatal(err)
		}
	}
}
