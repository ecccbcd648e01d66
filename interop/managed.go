package interop

// ManagedRoot is a log root that Kafka's LogManager has started on in a [Driver], as a broker's does.
type ManagedRoot struct {
	d  *Driver
	id int

	Online  bool // false: the manager gave the root up
	Deletes bool // folders of deleted partitions wait for their removal
	Logs    []ManagedLog
	Log     []string // what Kafka logged
}

// ManagedLog is a live partition, or the copy on its way from another root.
type ManagedLog struct {
	Folder        string `json:"folder"`
	Future        bool   `json:"future"`
	Start         int64  `json:"start"`
	End           int64  `json:"end"`
	RecoveryPoint int64  `json:"recoveryPoint"`
	Segments      int    `json:"segments"`
}

// OpenRoot starts Kafka's LogManager on a root; o.Topic and o.Partition are not looked at.
func (d *Driver) OpenRoot(o OpenOptions) (*ManagedRoot, error) {
	var r struct {
		Manager int
		Online  bool
		Deletes bool
		Logs    []ManagedLog
	}
	lines, err := d.call("openRoot", o, &r)
	if err != nil {
		return nil, err
	}
	return &ManagedRoot{d: d, id: r.Manager, Online: r.Online, Deletes: r.Deletes, Logs: r.Logs, Log: lines}, nil
}

// Close is the manager's clean stop: all logs, checkpoints, clean marker, lock.
func (m *ManagedRoot) Close() error {
	_, err := m.d.call("closeRoot", args{"manager": m.id}, nil)
	return err
}

// Abandon lets go without writing anything more.
func (m *ManagedRoot) Abandon() error {
	_, err := m.d.call("abandonRoot", args{"manager": m.id}, nil)
	return err
}
