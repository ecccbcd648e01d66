// Package compaction keeps, of all records with one key, the last: Kafka's log cleaner for one log.
//
// It knows segments and files, not logs: which log is cleaned when, and the list of segments that readers see, are the
// caller's. One cleaning has three steps, of which the caller may stop after any:
//
//	Config.Measure   facts about the segments                      []Fact
//	Config.Plan      pure: where the dirty part begins and ends,   Plan, Bounds
//	                 whether it is worth the work
//	Run              reads the dirty part into a map of keys,      Group by group: swapped in by the caller
//	                 then rewrites all segments from the first on
//
//	            FirstDirty        end of the map      Uncleanable = base of a segment
//	                |                   |                  |
//	| seg 0 | seg 1 | seg 2 | seg 3  .. | .. seg 4 | seg 5 | seg 6 | active |
//	 clean: no key twice    dirty: goes into the map        young, not stable or being written
//	 '------------ rewritten, in groups -----------'
//
// # What stays
//
// Offsets never change, nor does their order. Of each key the last record below the end of the map stays; records at or
// above it all stay. A tombstone and an end marker of a transaction need two cleanings to go: the first stamps a delete
// horizon into their batch (attribute bit 6, the time stands in place of the base timestamp), one whose clock is past
// the horizon removes them. Data of aborted transactions goes at once, their marker and its entry in the transaction index
// stay as long as anything of the transaction does. The last batch of every living producer stays at least as a header
// without records, so that its sequence numbers are not forgotten, and so does the last batch of the cleaned range.
// Records without a key go: a compacted log cannot have any.
//
// A batch of which everything stays is copied as it is. Others are built anew with the same codec, base offset, last offset,
// producer, flags and leader epoch.
//
// # Where Kafka's cleaner does otherwise
//
// It finds the same records to keep, and the same horizons. A segment that is alone in its group and loses nothing is left
// as it is, where Kafka writes it again. A segment that cannot be read does not keep those in front of it from being
// cleaned. Offsets that a group's index could not tell begin a further segment, where Kafka splits the old one and starts
// over. Records left of a compressed legacy set become plain entries of the same magic; a legacy entry leaves no header
// behind, where Kafka fails.
//
// # Through a crash
//
// New files are complete and synced, under the suffix .cleaned, before anything else happens. Then (see [Swap]):
//
//	.cleaned                         undone by Settle: the new files go
//	.cleaned and .swap               undone: renamed from the highest base down, so what is .swap alone is incomplete
//	.swap only                       done by Settle: what they cover goes, then the suffix
//	.swap, old files .deleted        done by Settle
//
// with a sync of the directory between two lines. Groups are swapped from the lowest offset up. So a crash leaves a log of
// which some groups, the lowest, are cleaned and the others are as before: a state that a finished cleaning of fewer
// groups would have left, too. Values go before, or together with, the tombstone that is behind them, never after it.
package compaction
