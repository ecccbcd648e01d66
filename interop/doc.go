// Package interop proves that partition folders pass between partlog and Apache Kafka 4.3.1 in both directions.
//
// It starts what it needs by itself. [Find] looks for a Java 17 and for Maven, asks Maven Central for Kafka once, compiles
// the Java sources of this folder and keeps all of it in the user's cache directory. [Driver] is one JVM with Kafka's
// storage classes, dump tool and clients, driven over a pipe; [Broker] is a single-node KRaft broker on loopback. Nothing
// built is committed.
//
//	test ──JSON lines──▶ Driver (JVM) ──▶ UnifiedLog, DumpLogSegments, MemoryRecords
//	  │                     └──clients──▶ Broker (JVM) ── log.dirs ──┐
//	  └────────────────── partlog ──────────────────────────────────┴──▶ the same folder
package interop
