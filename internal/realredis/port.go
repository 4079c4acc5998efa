package realredis

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// errPortTaken reports that another process listens on the chosen port.
var errPortTaken = errors.New("realredis: the port is taken")

// Ports are drawn from this range and not by the kernel (":0"), because the kernel chooses from the range that outgoing
// connections use: while a server is killed, any client's connection on the machine could take its port, and Restart would
// fail. The cluster bus uses a port that is higher by 10000; it must stay below that range (32768 on Linux), too.
const portMin, portMax = 12000, 22000

var ports struct {
	sync.Mutex
	used map[int]bool // by this process, including killed servers
}

// reservePort returns a free port that no other server of this process uses.
func reservePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.used == nil {
		ports.used = make(map[int]bool)
	}
	for range portMax - portMin {
		p := portMin + rand.IntN(portMax-portMin)
		if ports.used[p] {
			continue
		}
		// This check only avoids starting a server in vain: the server's own bind decides.
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
		if err != nil {
			continue
		}
		l.Close()
		ports.used[p] = true
		return p, nil
	}
	return 0, errors.New("realredis: no free port")
}

func releasePort(p int) {
	ports.Lock()
	defer ports.Unlock()
	delete(ports.used, p)
}
