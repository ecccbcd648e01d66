package interop

import "github.com/partlog/partlog/internal/golden"

// UnifiedLog is one partition opened by Kafka's own storage class inside a [Driver], without a broker. It behaves as the
// log of a leader without followers: the high watermark is the log end offset.
type UnifiedLog struct {
	d  *Driver
	id int

	Opened State    // right after opening
	Log    []string // what Kafka logged while opening: recovery and rebuilding show here
}

// OpenOptions of [Driver.Open].
type OpenOptions struct {
	Root      string            `json:"root"`
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Config    map[string]string `json:"config,omitempty"`
	NowMs     int64             `json:"nowMs"` // the clock stands there; < 0: the system clock
	TopicID   string            `json:"topicId,omitempty"`

	ProducerExpirationMs int64 `json:"producerExpirationMs,omitempty"` // producer.id.expiration.ms; 0: a day
	Verify               bool  `json:"verify,omitempty"`               // transaction.partition.verification.enable
}

// State is what Kafka says about an open log.
type State struct {
	golden.Opened
	Indexes []Indexes `json:"indexes"`
}

// Indexes are the entries of one segment.
type Indexes struct {
	BaseOffset int64 `json:"baseOffset"`
	Offsets    []struct {
		Offset   int64 `json:"offset"`
		Position int64 `json:"position"`
	} `json:"offsets"`
	Times []struct {
		Timestamp int64 `json:"timestamp"`
		Offset    int64 `json:"offset"`
	} `json:"times"`
}

// Appended is Kafka's answer to an append.
type Appended struct {
	FirstOffset    int64 `json:"firstOffset"`
	LastOffset     int64 `json:"lastOffset"`
	LogAppendTime  int64 `json:"logAppendTime"`
	LogStartOffset int64 `json:"logStartOffset"`
	MaxTimestamp   int64 `json:"maxTimestamp"`
}

// TimeOffset is the answer to an offset-for-time question.
type TimeOffset struct {
	Timestamp   int64 `json:"timestamp"`
	Offset      int64 `json:"offset"`
	LeaderEpoch int32 `json:"leaderEpoch"`
}

// EpochEnd is the answer to an end-offset-for-epoch question.
type EpochEnd struct {
	Epoch     int32 `json:"epoch"`
	EndOffset int64 `json:"endOffset"`
}

// Open does what a broker's start does for this partition: takes the root's lock, consumes the clean marker, reads the
// checkpoints, recovers if it must. A missing partition folder is created.
func (d *Driver) Open(o OpenOptions) (*UnifiedLog, error) {
	var s struct {
		State
		Log int `json:"log"`
	}
	lines, err := d.call("open", o, &s)
	if err != nil {
		return nil, err
	}
	return &UnifiedLog{d: d, id: s.Log, Opened: s.State, Log: lines}, nil
}

type args map[string]any

func (l *UnifiedLog) call(cmd string, a args, out any) ([]string, error) {
	if a == nil {
		a = args{}
	}
	a["log"] = l.id
	return l.d.call(cmd, a, out)
}

// State asks again.
func (l *UnifiedLog) State() (s State, err error) {
	_, err = l.call("state", nil, &s)
	return s, err
}

// BriefState is State without segments and indexes.
func (l *UnifiedLog) BriefState() (s State, err error) {
	_, err = l.call("state", args{"brief": true}, &s)
	return s, err
}

// Close does what a broker's clean stop does: flush, close, checkpoints, clean marker, lock file removed.
func (l *UnifiedLog) Close() error {
	_, err := l.call("close", nil, nil)
	return err
}

// Abandon lets the log and the lock go without writing anything more.
func (l *UnifiedLog) Abandon() error {
	_, err := l.call("abandon", nil, nil)
	return err
}

// AppendAsLeader validates raw as a client's produce request (origin "" or "CLIENT"; also "COORDINATOR") and assigns offsets.
func (l *UnifiedLog) AppendAsLeader(raw []byte, epoch int32, origin string) (r Appended, err error) {
	if origin == "" {
		origin = "CLIENT"
	}
	_, err = l.call("appendAsLeader", args{"raw": raw, "epoch": epoch, "origin": origin}, &r)
	return r, err
}

// Verify says that the producer's coordinator is going to be asked about a transaction, and returns the number of the guard: the
// same guard has the same number, 0 is the one that verifies nothing.
func (l *UnifiedLog) Verify(producerID int64, epoch int16, sequence int32, bumps bool) (guard int, err error) {
	var r struct{ Guard int }
	_, err = l.call("verify", args{"producerId": producerID, "producerEpoch": epoch, "sequence": sequence, "bumps": bumps}, &r)
	return r.Guard, err
}

// AppendVerified is AppendAsLeader of a client with the guard of that number.
func (l *UnifiedLog) AppendVerified(raw []byte, epoch int32, guard int) (r Appended, err error) {
	_, err = l.call("appendAsLeader", args{"raw": raw, "epoch": epoch, "guard": guard}, &r)
	return r, err
}

// ExpireProducers does what Kafka does every ten minutes.
func (l *UnifiedLog) ExpireProducers() error {
	_, err := l.call("expireProducers", nil, nil)
	return err
}

// AppendMarker appends the end of a transaction as a coordinator of that transaction version asks for it.
func (l *UnifiedLog) AppendMarker(raw []byte, epoch int32, transactionVersion int) (r Appended, err error) {
	_, err = l.call("appendAsLeader", args{"raw": raw, "epoch": epoch, "origin": "COORDINATOR", "transactionVersion": transactionVersion}, &r)
	return r, err
}

// AppendAsFollower keeps offsets and epochs of raw.
func (l *UnifiedLog) AppendAsFollower(raw []byte, epoch int32) (r Appended, err error) {
	_, err = l.call("appendAsFollower", args{"raw": raw, "epoch": epoch}, &r)
	return r, err
}

// Records decodes all data records from the log start offset on; fields above digestOver bytes (0: never) as digests.
func (l *UnifiedLog) Records(digestOver int) (rs []Record, err error) {
	_, err = l.call("records", args{"digestOver": digestOver}, &rs)
	return rs, err
}

// RecordsFrom is Records from an offset on, at most max.
func (l *UnifiedLog) RecordsFrom(from int64, max int) (rs []Record, err error) {
	_, err = l.call("records", args{"from": from, "max": max}, &rs)
	return rs, err
}

// Read fetches raw bytes as a follower would.
func (l *UnifiedLog) Read(offset int64, maxBytes int) ([]byte, error) {
	var r rawAnswer
	_, err := l.call("read", args{"offset": offset, "maxBytes": maxBytes}, &r)
	return r.Raw, err
}

// Committed is what a broker answers to a read-committed fetch.
type Committed struct {
	Raw     []byte         `json:"raw"`
	Aborted []AbortedFetch `json:"aborted"`
}

// AbortedFetch names a transaction whose batches, from FirstOffset up to the producer's next ABORT marker, are to be left out.
type AbortedFetch struct {
	ProducerID  int64 `json:"producerId"`
	FirstOffset int64 `json:"firstOffset"`
}

// ReadCommitted fetches raw bytes as a read-committed consumer would, and the aborted transactions to leave out.
func (l *UnifiedLog) ReadCommitted(offset int64, maxBytes int) (r Committed, err error) {
	_, err = l.call("read", args{"offset": offset, "maxBytes": maxBytes, "isolation": "TXN_COMMITTED"}, &r)
	return r, err
}

// SetClock moves the clock the log looks at.
func (l *UnifiedLog) SetClock(nowMs int64) error {
	_, err := l.call("clock", args{"nowMs": nowMs}, nil)
	return err
}

// TruncateTo cuts the log; offsets at or above the end change nothing.
func (l *UnifiedLog) TruncateTo(offset int64) (changed bool, err error) {
	var r struct{ Changed bool }
	_, err = l.call("truncateTo", args{"offset": offset}, &r)
	return r.Changed, err
}

// TruncateFullyAndStartAt empties the log and lets it begin at offset.
func (l *UnifiedLog) TruncateFullyAndStartAt(offset int64) error {
	_, err := l.call("truncateFullyAndStartAt", args{"offset": offset}, nil)
	return err
}

// DeleteRecords raises the log start offset as a client's request does; segments below it wait for DeleteOldSegments.
func (l *UnifiedLog) DeleteRecords(offset int64) (changed bool, err error) {
	var r struct{ Changed bool }
	_, err = l.call("deleteRecords", args{"offset": offset}, &r)
	return r.Changed, err
}

// DeleteOldSegments runs retention once.
func (l *UnifiedLog) DeleteOldSegments() (deleted int, err error) {
	var r struct{ Deleted int }
	_, err = l.call("deleteOldSegments", nil, &r)
	return r.Deleted, err
}

// SetHighWatermark moves it anywhere between start and end; the next append or truncation takes it to the end again.
func (l *UnifiedLog) SetHighWatermark(offset int64) error {
	_, err := l.call("highWatermark", args{"offset": offset}, nil)
	return err
}

// CleanOptions of [UnifiedLog.Clean]; zero fields are the driver's defaults.
type CleanOptions struct {
	Log    int     `json:"log"`
	Force  bool    `json:"force,omitempty"`  // whether the log is dirty enough or not
	Map    int     `json:"map,omitempty"`    // bytes for keys
	Load   float64 `json:"load,omitempty"`   // log.cleaner.io.buffer.load.factor
	Buffer int     `json:"buffer,omitempty"` // bytes of a buffer
	// InterruptAfter ends the cleaning where Kafka's own would look the nth time whether it was aborted.
	InterruptAfter *int `json:"interruptAfter,omitempty"`
}

// Cleaned says what Kafka's cleaner chose and did.
type Cleaned struct {
	Due            bool  // dirty enough
	FirstDirty     int64 // zero, as all below, if there was no cleaning
	Uncleanable    int64
	CleanBytes     int64
	CleanableBytes int64
	NextDirty      int64 // the new checkpoint
}

// Clean lets Kafka's cleaner choose and clean once, by the clock of the log, and writes its checkpoint.
func (l *UnifiedLog) Clean(o CleanOptions) (c Cleaned, err error) {
	o.Log = l.id
	_, err = l.d.call("clean", o, &c)
	return c, err
}

// Roll starts a new segment.
func (l *UnifiedLog) Roll() (baseOffset int64, err error) {
	var r struct{ BaseOffset int64 }
	_, err = l.call("roll", nil, &r)
	return r.BaseOffset, err
}

// Flush syncs everything written and moves the recovery point.
func (l *UnifiedLog) Flush() error {
	_, err := l.call("flush", nil, nil)
	return err
}

// AssignEpoch writes an epoch entry as becoming leader does.
func (l *UnifiedLog) AssignEpoch(epoch int32, offset int64) error {
	_, err := l.call("assignEpoch", args{"epoch": epoch, "offset": offset}, nil)
	return err
}

// OffsetForTime is nil if there is none; timestamps −1 … −4 have Kafka's special meanings.
func (l *UnifiedLog) OffsetForTime(timestamp int64) (r *TimeOffset, err error) {
	_, err = l.call("offsetForTime", args{"timestamp": timestamp}, &r)
	return r, err
}

// EndOffsetForEpoch is nil for an epoch the log cannot answer.
func (l *UnifiedLog) EndOffsetForEpoch(epoch int32) (r *EpochEnd, err error) {
	_, err = l.call("endOffsetForEpoch", args{"epoch": epoch}, &r)
	return r, err
}
