// Package retention decides which of a log's segments may go: Kafka's rules of size, age and start offset as a pure
// function. It reads no file and no clock; the same facts and the same time give the same plan.
//
//	            log start          high watermark     log end
//	                |                     |              |
//	+-----------+---|-------+-----------+-|---------+----|------
//	| segment 0 | segment 5 | segment 9 | segment 14| segment 20 (active)
//	+-----------+-----------+-----------+-----------+-----------
//	 start offset    age         age       high watermark holds it, and so all behind it
//	<------------- Plan.Drop ---------->
//	                                    ^ Plan.NewStart
//
// What goes is always a prefix of whole segments. Three reasons are looked at, in this order, each from where the one
// before stopped:
//
//  1. start offset: the segment lies below the log start (every cleanup.policy, an empty one too)
//  2. size: the log would still be at least retention.bytes large without the segment (policies with delete)
//  3. age: the segment's largest timestamp is more than retention.ms before now (policies with delete)
//
// A segment that reaches above the high watermark never goes, and neither does what is behind it. The active segment goes
// by size or age when all before it go and it holds something: the log is rolled first (Plan.RollFirst), so it ends as one
// empty segment at the same log end. No rule looks at the records themselves: damage inside a segment does not keep it.
//
// Timestamps are the producers' (or the log's, see message.timestamp.type), not the time of arrival, as in Kafka: a replica
// that copied old records deletes them when the leader does. One record from the future keeps its segment and all behind
// it from going by age; Plan.HeldBy says so, size still counts, and message.timestamp.after.max.ms refuses such records.
package retention
