// Package placement says which brokers hold the replicas of new partitions: Kafka's two ways of spreading them, as pure
// functions. The first replica of a list is the preferred leader.
//
// Staggered is the classic way (brokers of ZooKeeper's time). The leaders go round the brokers, the followers stand at a
// shift behind their leader, and the shift grows by one each time the leaders have gone round, so that the load of a lost
// broker falls on all others. Five brokers, three replicas, everything starting at 0:
//
//	          partition  0  1  2  3  4 | 5  6  7  8  9
//	preferred leader     0  1  2  3  4 | 0  1  2  3  4
//	second               1  2  3  4  0 | 2  3  4  0  1     the shift went from 1 to 2
//	third                2  3  4  0  1 | 3  4  0  1  2
//
// With racks the brokers are first dealt out rack by rack, and a follower's place is passed over while its rack already
// holds a replica and another rack holds none.
//
// Striped is the present way (KRaft). Each rack has a list of its live and one of its fenced brokers; a partition takes one
// broker from each rack in turn, beginning one rack later than the partition before, and each list begins one place later
// each time it is used. When every live broker has led once, racks and lists are shuffled. A fenced broker never leads and
// follows only where its rack has no live one left.
//
// Both are random in where they begin. The random numbers are arguments: the same ones give the same answer.
package placement
