package record

import "fmt"

// validateLegacy judges a set of magic 0 or 1 and builds one batch of magic 2 from it. Offsets inside are not looked at: they
// are given anew. A compressed entry must be the only one.
func (d *Decoder) validateLegacy(raw []byte, o *ValidateOptions) (Validated, error) {
	v := validation{o: *o, max: NoTimestamp}
	var first Batch
	index := 0
	for rest := raw; len(rest) > 0; {
		b, after, err := Next(rest)
		if err != nil {
			return Validated{}, invalidBatch("no whole entry follows: %v", err)
		}
		if rest = after; index == 0 {
			if err := d.startLegacy(b, o, len(rest) > 0); err != nil {
				return Validated{}, err
			}
			first = b
		} else if b.Magic() != first.Magic() || b.Codec() != None {
			return Validated{}, invalidBatch("entries of different formats, or a compressed one among others")
		}
		v.appended = b.TimestampType() == LogAppendTime
		if index, err = d.addLegacy(&v, b, index); err != nil {
			return Validated{}, invalidContent(err)
		}
	}
	if v.errs != nil {
		return Validated{}, v.errs
	}
	return d.finishRebuild(&v)
}

func (d *Decoder) startLegacy(b Batch, o *ValidateOptions, more bool) error {
	source := b.Codec()
	switch {
	case source >= Zstd || o.target(None) > Zstd:
		return fmt.Errorf("%w in attributes %#x of magic %d", ErrCodec, b.Attributes(), b.Magic())
	case source != None && more:
		return invalidBatch("more than one batch")
	}
	d.startRebuild(b, o, o.target(source))
	return nil
}

// addLegacy checks the records of one entry and adds them to the batch in the making. It answers the next record's index.
func (d *Decoder) addLegacy(v *validation, b Batch, index int) (int, error) {
	var m legacyMessage
	if err := parseLegacy(b, &m); err != nil {
		return index, err
	}
	if m.codec() == None {
		return index + 1, d.addLegacyRecord(v, &m, index, "")
	}
	w, err := d.openLegacy(&m)
	if err != nil {
		return index, err
	}
	for p := w.set; len(p) > 0; index++ {
		p, _ = cutLegacy(p, &m) // openLegacy has seen that each parses
		reason := ""
		if m.magic != b.Magic() {
			reason = "its magic is not that of the entry around it"
		}
		if w.stamped {
			m.timestamp = w.stamp
		}
		if err := d.addLegacyRecord(v, &m, index, reason); err != nil {
			return index, err
		}
	}
	return index, nil
}

func (d *Decoder) addLegacyRecord(v *validation, m *legacyMessage, index int, reason string) error {
	r := Record{Offset: int64(index), Timestamp: m.timestamp, Key: m.key, Value: m.value}
	if !v.check(index, &r, reason) {
		return nil
	}
	return d.build.add(&r, r.Offset, r.Timestamp)
}
