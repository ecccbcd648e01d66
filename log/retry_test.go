package log

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A leader's batch that was refused, at whatever step, is as the caller gave it and can be appended again.
func TestABatchThatWasRefusedCanBeAppendedAgain(t *testing.T) {
	for _, kind := range []record.TimestampType{record.CreateTime, record.LogAppendTime} {
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{TimestampType: kind})
		require.NoError(t, b.AssignEpoch(3))
		b.add("a", "b")
		given := timed(epoch2023, epoch2023+1)
		raw := bytes.Clone(given)
		wrong, stale := int64(7), int32(1)
		attempts := map[string]func() (Appended, error){
			"another end":   func() (Appended, error) { return b.AppendBatches(ctx, raw, AppendOptions{ExpectedOffset: &wrong}) },
			"a stale epoch": func() (Appended, error) { return b.AppendBatches(ctx, raw, AppendOptions{LeaderEpoch: &stale}) },
			"a full disk": func() (Appended, error) {
				fault.SetQuota(0)
				defer fault.SetQuota(-1)
				return b.AppendBatches(ctx, raw, AppendOptions{})
			},
			"no role": func() (Appended, error) { return b.AppendBatches(ctx, raw, AppendOptions{As: 7}) },
		}
		for name, attempt := range attempts {
			b.clock.advance(time.Second)
			res, err := attempt()
			require.Error(t, err, name)
			require.Equal(t, notAppended, res, name)
			require.Equal(t, given, raw, name)
		}
		res, err := b.AppendBatches(ctx, raw, AppendOptions{})
		require.NoError(t, err)
		require.Equal(t, int64(2), res.Base)
		require.Equal(t, []int64{0, 1, 2, 3}, b.readAll(0))
	}
}

// Who is told that the batch is in the log keeps the bytes that are there.
func TestAnUnconfirmedBatchStaysAsItWasWritten(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	b.add("a")
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData}, Nth: 1, Err: context.DeadlineExceeded})
	raw := timed(epoch2023)
	res, err := b.AppendBatches(ctx, raw, AppendOptions{})
	u := (*UnconfirmedError)(nil)
	require.ErrorAs(t, err, &u)
	require.Equal(t, int64(1), res.Base)
	v, err := record.View(raw)
	require.NoError(t, err)
	require.Equal(t, int64(1), v.BaseOffset())
}

func TestAppendOptionsThatAreNoConstantsAreRefused(t *testing.T) {
	b := newBed(t, Config{})
	for field, o := range map[string]AppendOptions{"AppendOptions.As": {As: 7}, "AppendOptions.Durability": {Durability: 7}} {
		_, err := b.AppendBatches(ctx, timed(epoch2023), o)
		c := (*ConfigError)(nil)
		require.ErrorAs(t, err, &c)
		require.Equal(t, field, c.Field)
	}
	require.Zero(t, b.Offsets().LogEnd)
}

// Every refusal says what is wrong once, with the setting that forbids it.
func TestRefusalsNameTheSettingAndDoNotStutter(t *testing.T) {
	b := newBed(t, Config{MaxMessageBytes: 200, TimestampBefore: time.Hour, SegmentBytes: 1 << 20})
	late := record.Record{Timestamp: epoch2023 + 2*time.Hour.Milliseconds(), Value: []byte("v")}
	early := record.Record{Timestamp: epoch2023 - 2*time.Hour.Milliseconds(), Value: []byte("v")}
	large := record.Record{Value: make([]byte, 300)}
	appended := func(r record.Record) error { _, err := b.Append(ctx, r); return err }
	encoded := func(raw []byte) error { _, err := b.AppendBatches(ctx, raw, AppendOptions{}); return err }
	withRecord := func(r record.Record) []byte {
		builder := record.NewBuilder(record.BuilderOptions{})
		require.NoError(t, builder.AddAt(r))
		batch, err := builder.Finish()
		require.NoError(t, err)
		return bytes.Clone(batch.Bytes())
	}
	bad := timed(epoch2023)
	bad[len(bad)-1] ^= 1
	for name, row := range map[string]struct {
		err  error
		is   error
		says []string
	}{
		"late":          {appended(late), ErrInvalidTimestamp, []string{"message.timestamp.after.max.ms is 3600000", "7200000 ms ahead"}},
		"early":         {appended(early), ErrInvalidTimestamp, []string{"message.timestamp.before.max.ms is 3600000", "7200000 ms before"}},
		"late batch":    {encoded(withRecord(late)), ErrInvalidTimestamp, []string{"message.timestamp.after.max.ms is 3600000"}},
		"early batch":   {encoded(withRecord(early)), ErrInvalidTimestamp, []string{"message.timestamp.before.max.ms is 3600000"}},
		"large":         {appended(large), ErrTooLarge, []string{"a batch of 3", "max.message.bytes is 200"}},
		"large batch":   {encoded(withRecord(large)), ErrTooLarge, []string{"a batch of 3", "max.message.bytes is 200"}},
		"damaged batch": {encoded(bad), ErrInvalidRecord, []string{"crc"}},
	} {
		require.ErrorIs(t, row.err, row.is, name)
		text := row.err.Error()
		for _, want := range row.says {
			require.Contains(t, text, want, name)
		}
		for _, once := range []string{"invalid record", "invalid timestamp", "too large", "record: ", "corrupt"} {
			require.LessOrEqual(t, strings.Count(text, once), 1, "%s: %s", name, text)
		}
	}
}
