package realredis

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// errPortTaken says that somebody else listens on the chosen port.
var errPortTaken = errors.New("realredis: the port is taken")

// Ports are drawn from here and not from the kernel (":0"), because its choice is from the range that outgoing
// connections use: while a server is killed, any client's connection on the machine could sit down on its port and
// Restart would fail. A cluster's bus is 10000 higher and must stay below that range (32768 on Linux), too.
const portMin, portMax = 12000, 22000

var ports struct {
	sync.Mutex
	used map[int]bool // by this process, killed servers included
}

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
		// Saves starting a server in vain; what decides is the server's own bind.
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
