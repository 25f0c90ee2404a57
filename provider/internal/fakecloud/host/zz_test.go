package host
import ("testing";"time";"fmt";"runtime";"net/http/httptest";"net/http";"net";"sync/atomic";"encoding/pem"
"bigfleet-providers/provider/internal/fakecloud";"bigfleet-providers/cloudinit")
func TestZZ(t *testing.T){
 var parked, conns atomic.Int64
 for _, streams := range []int{16<<10, 250} {
 parked.Store(0); conns.Store(0)
 done := make(chan struct{})
 s:=httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,r *http.Request){ parked.Add(1); defer parked.Add(-1); select{case <-r.Context().Done():case <-done:w.WriteHeader(204);case <-time.After(50*time.Second): w.WriteHeader(204)}}))
 s.EnableHTTP2=true
 s.Config.HTTP2=&http.HTTP2Config{MaxConcurrentStreams:streams}
 s.Config.ConnState=func(_ net.Conn, st http.ConnState){if st==http.StateNew{conns.Add(1)}}
 s.StartTLS()
 ca:=string(pem.EncodeToMemory(&pem.Block{Type:"CERTIFICATE",Bytes:s.Certificate().Raw}))
 var m0,m1 runtime.MemStats
 runtime.GC(); runtime.ReadMemStats(&m0)
 h:=NewInProcess(InProcessOptions{})
 b:=time.Now()
 var datas [][]byte
 for i:=range 8000{ id:=fmt.Sprintf("m%d",i); datas=append(datas,userData(t,cloudinit.Params{Endpoint:s.URL,CAPEM:ca,MachineID:id}))}
 fmt.Println("rendered",time.Since(b)); b=time.Now()
 for i:=range 8000{ id:=fmt.Sprintf("m%d",i); h.Boot(fakecloud.Guest{ServerID:id,Boot:1,UserData:datas[i]})}
 fmt.Println("booted",time.Since(b))
 for parked.Load()<8000 && time.Since(b)<60*time.Second {time.Sleep(20*time.Millisecond)}
 runtime.GC(); runtime.ReadMemStats(&m1)
 fmt.Println(streams,"parked",parked.Load(),time.Since(b),"conns",conns.Load(),"MB",(m1.HeapAlloc-m0.HeapAlloc)>>20,"stack MB",(m1.StackInuse-m0.StackInuse)>>20,"goroutines",runtime.NumGoroutine())
 b=time.Now(); h.Close(); fmt.Println("close",time.Since(b)); close(done); s.Close()
 }
}
