// instead.go - nanoseconds that a decision of x/time/rate takes, one limiter a key in a map behind a mutex: the median of 5
// repetitions. Run by instead.sh.
package main

import (
	"fmt"
	"math/rand"
	"sort"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

func main() {
	const keys, repeats = 1000, 5
	var mutex sync.Mutex
	limiters := map[string]*rate.Limiter{}
	names := make([]string, 1<<16)
	zipf := rand.NewZipf(rand.New(rand.NewSource(1)), 1.0001, 1, keys-1)
	for i := range names {
		names[i] = fmt.Sprintf("key-%012d", zipf.Uint64())
	}
	allow := func(name string) bool {
		mutex.Lock()
		limiter, ok := limiters[name]
		if !ok {
			limiter = rate.NewLimiter(1e9, 1e9)
			limiters[name] = limiter
		}
		mutex.Unlock()
		return limiter.Allow()
	}
	var ns []float64
	for repeat := 0; repeat <= repeats; repeat++ {
		n := 0
		start := time.Now()
		for time.Since(start) < 100*time.Millisecond {
			for i := 0; i < 1024; i++ {
				allow(names[n%len(names)])
				n++
			}
		}
		if repeat > 0 {
			ns = append(ns, float64(time.Since(start).Nanoseconds())/float64(n))
		}
	}
	sort.Float64s(ns)
	fmt.Printf("%.1f\n", ns[repeats/2])
}
