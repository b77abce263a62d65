"""Clients that speak the session protocol wrong, on purpose. Whatever they do, the agent answers them or sends them away,
goes on for the others, and ends cleanly. Packets and memory are made here by hand, from agent/client/session_protocol.hpp
and dataplane/memory/shm_layout.hpp, because the client library refuses to do such things."""

import array
import fcntl
import itertools
import mmap
import os
import random
import resource
import select
import socket
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from agent_process import Agent, gradients

MAGIC, VERSION = 0x53534B4C, 1
HELLO, JOIN, JOIN_REPLY = 1, 3, 4
NO_ID = 0xFFFF
DATA = 1 << 20
OK, INVALID = 0, 1
HUGE = (1 << 64) - 1
COUNT = itertools.count()


def hello(data=DATA, submit=256, completion=256, name=b"liar", version=VERSION, kind=HELLO, magic=MAGIC):
    return struct.pack("<IHHQII64s", magic, version, kind, data, submit, completion, name)


def join(group=b"lies", rank=0, ranks=1, endpoint=NO_ID, request=1):
    return struct.pack("<IHHIHHH6x64s", MAGIC, VERSION, JOIN, request, rank, ranks, endpoint, group)


class Liar:
    """One connection, and what it was given."""

    def __init__(self, agent):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(agent.socket + ".session")
        self.socket.settimeout(30)
        self.name = b"lies%d" % next(COUNT)
        self.descriptors = []
        self.memory = None
        self.words = None  # the memory by its 8 bytes, each written at once: struct writes a zero first

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.memory is not None:
            self.words.release()
            self.memory.close()
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors, self.memory = [], None
        self.socket.close()

    def send(self, packet):
        try:
            self.socket.send(packet)
        except OSError:
            pass  # it was sent away meanwhile

    def receive(self):
        """A packet, b"" when it was sent away."""
        space = socket.CMSG_SPACE(3 * 4)
        try:
            packet, ancillary, _, _ = self.socket.recvmsg(512, space)
        except ConnectionResetError:
            return b""
        for _, _, data in ancillary:
            self.descriptors += array.array("i", data)
        return packet

    def attach(self, **options):
        self.send(hello(**options))
        packet = self.receive()
        assert packet[24] == OK, packet[32:]
        self.memory = mmap.mmap(self.descriptors[0], 0)
        self.words = memoryview(self.memory).cast("Q")
        header = struct.unpack_from("<QIIII", self.memory, 0)
        self.submit_slots, self.completion_slots = header[2], header[3]
        self.submit, self.completion = struct.unpack_from("<QQ", self.memory, 24)
        self.agent_bell, self.bell = self.descriptors[1], self.descriptors[2]
        return self

    def join(self, **options):
        """Number of the group, once it is ready."""
        self.send(join(**{"group": self.name, **options}))
        packet = self.receive()
        assert packet[16] == OK, packet[24:]
        ready = self.receive()
        assert ready[36] == OK, ready[40:]
        self.group, = struct.unpack_from("<H", packet, 12)
        return self.group

    def entry(self, number=1, count=16, in_offset=0, out_offset=0, rank=0, group=None, kind=0, dtype=0, cookie=77):
        return struct.pack("<QBBBBHHH6xQQQQ8x", number, kind, 0, dtype, 0, rank, self.group if group is None else group,
                           0, count, in_offset, out_offset, cookie)

    def enter(self, *entries, position=None):
        """Writes entries and a position, and rings."""
        at = self.words[self.submit // 8]
        for entry in entries:
            begin = self.submit + 192 + (at % self.submit_slots) * 64
            self.memory[begin:begin + 64] = entry
            at += 1
        self.words[self.submit // 8] = at if position is None else position
        os.write(self.agent_bell, struct.pack("<Q", 1))

    def statuses(self, count):
        """Of that many completions, in their order."""
        until = time.monotonic() + 30
        while self.words[self.completion // 8] < count:
            assert time.monotonic() < until, "no completion"
            os.sched_yield()
        return [self.memory[self.completion + 192 + i * 32 + 16] for i in range(count)]


class Lies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agent = Agent("configs/lab/mesh-4gpu.toml")

    @classmethod
    def tearDownClass(cls):
        code = cls.agent.end()
        cls.agent.__exit__()
        assert code == 0, cls.agent.log
        assert " error " not in cls.agent.log, cls.agent.log

    def tearDown(self):
        # Everybody else is served as before, and nothing of the liar is left.
        done = self.agent.ctl("allreduce", "--input", *gradients(8))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.agent.wait_until(["status"], lambda s: s["clients"] == 0)
        self.agent.wait_until(["show", "ops"], lambda ops: ops == [])

    def sent_away(self, *packets):
        with Liar(self.agent) as liar:
            for packet in packets:
                liar.send(packet)
            while (answer := liar.receive()) != b"":
                self.assertLessEqual(len(answer), 512)

    def refused(self, packet):
        """Answered with a reason, then sent away."""
        with Liar(self.agent) as liar:
            liar.send(packet)
            answer = liar.receive()
            self.assertNotEqual(answer[24], OK)
            self.assertNotEqual(answer[32], 0)
            self.assertEqual(liar.descriptors, [])
            self.assertEqual(liar.receive(), b"")

    def test_packets_that_are_none(self):
        whole = hello()
        for packet in (b"", b"x", whole[:7], whole[:-1], whole + b"x", bytes(512), b"\xff" * 512, whole * 5,
                       hello(version=2), hello(magic=1), hello(kind=0), hello(kind=2), hello(kind=77), join()):
            self.sent_away(packet)
        noise = random.Random(3)
        for _ in range(200):
            self.sent_away(noise.randbytes(noise.randrange(600)))
        for _ in range(50):  # a good beginning and a bad rest
            self.sent_away(whole, noise.randbytes(noise.randrange(1, 500)))

    def test_sizes_that_cannot_be(self):
        for options in ({"data": HUGE}, {"data": 1 << 62}, {"data": (256 << 30) + 1}, {"submit": 0}, {"completion": 0},
                        {"submit": 0xFFFFFFFF}, {"completion": 0xFFFFFFFF}, {"submit": (1 << 16) + 1}):
            with self.subTest(**options):
                self.refused(hello(**options))

    def test_attaching_twice(self):
        self.sent_away(hello(), hello())

    def test_names_that_are_no_text(self):
        for name in (b"\xff\xfe\x80" * 20, b"a\nb\x1b[31m\0c", b"n" * 64, b""):
            with Liar(self.agent) as liar:
                liar.attach(name=name)
                liar.join(ranks=1)
                groups = self.agent.ask("show", "groups")
                self.assertTrue(any(g["name"] == liar.name.decode() and g["state"] == "ready" for g in groups))
                self.assertNotIn("\x1b", self.agent.ctl("show", "groups").stdout)
            self.agent.wait_until(["status"], lambda s: s["clients"] == 0)

    def test_descriptors_that_nobody_asked_for(self):
        with Liar(self.agent) as liar:
            ends = os.pipe()
            socket.send_fds(liar.socket, [hello()], [ends[0]] * 100)
            os.close(ends[0])
            self.assertIn(liar.receive()[24:25], (b"\0", b""))
            os.set_blocking(ends[1], False)
            with self.assertRaises(BrokenPipeError):  # the agent holds no reading end
                os.write(ends[1], b"x")
            os.close(ends[1])

    def test_memory_cannot_shrink_or_go_away(self):
        with Liar(self.agent) as liar:
            liar.attach()
            for size in (0, 4096, 1 << 40):
                with self.assertRaises(PermissionError):
                    os.ftruncate(liar.descriptors[0], size)
            liar.join()
            punch = 0x01 | 0x02  # keep the size, make a hole: pages of zeros, no fault
            libc_fallocate(liar.descriptors[0], punch, 0, len(liar.memory))
            liar.enter(liar.entry())
            self.assertEqual(liar.statuses(1), [OK])

    def test_joins_that_cannot_be(self):
        with Liar(self.agent) as liar:
            liar.attach()
            for options in ({"ranks": 0}, {"rank": 1}, {"rank": 0xFFFF, "ranks": 0xFFFF}, {"ranks": 9},
                            {"endpoint": 8}, {"endpoint": 0xFFFE}, {"group": b""}, {"group": b"a b"},
                            {"group": b"\xff\x80"}):
                with self.subTest(**options):
                    liar.send(join(**options))
                    self.assertNotEqual(liar.receive()[16], OK)
            # What was refused binds nobody: the same name with another number of ranks.
            liar.send(join(group=b"other", ranks=8, endpoint=99))
            self.assertNotEqual(liar.receive()[16], OK)
            liar.join(group=b"other", ranks=1)

    def test_more_groups_than_there_may_be(self):
        with Liar(self.agent) as liar:
            liar.attach()
            refusals = 0
            for i in range(3000):
                liar.send(join(group=b"g%d" % i, ranks=2, request=i))
                refusals += liar.receive()[16] != OK
            self.assertGreaterEqual(refusals, 1900)
            self.assertEqual(self.agent.ctl("status").returncode, 0)

    def test_entries_that_are_wrong(self):
        with Liar(self.agent) as liar:
            liar.attach()
            liar.join()
            wrong = [{"number": 0}, {"number": 2}, {"number": HUGE}, {"rank": 1}, {"group": 0xFFFE}, {"count": HUGE},
                     {"count": 1 << 62}, {"count": DATA}, {"in_offset": DATA, "out_offset": DATA},
                     {"in_offset": HUGE - 3, "out_offset": HUGE - 3}, {"in_offset": 2, "out_offset": 2},
                     {"in_offset": 0, "out_offset": 4}, {"kind": 9}, {"dtype": 200}]
            # A number is used up by an entry that is in its place, be it wrong or not.
            used, entries = 1, []
            for options in wrong:
                number = options.pop("number", used)
                entries.append(liar.entry(number=number, **options))
                used += number == used and not {"rank", "group"} & set(options)
            liar.enter(*entries)
            self.assertNotIn(OK, liar.statuses(len(entries)))
            liar.join(group=b"better")
            liar.enter(liar.entry())
            self.assertEqual(liar.statuses(len(entries) + 1)[-1], OK)

    def test_positions_that_cannot_be(self):
        for ring in ("submit", "completion"):
            for position in (HUGE, 1 << 63, 1000):
                with self.subTest(ring=ring, position=position), Liar(self.agent) as liar:
                    liar.attach()
                    liar.join()
                    if ring == "submit":
                        liar.enter(position=position)
                    else:  # how far the client has read, while the ring is filled to its end
                        liar.words[liar.completion // 8 + 8] = position
                        entries = [liar.entry(number=n) for n in range(1, 257)]
                        liar.enter(*entries)
                        liar.statuses(256)
                        liar.enter(liar.entry(number=257))
                    self.assertEqual(liar.receive(), b"")

    def test_memory_full_of_noise(self):
        noise = random.Random(5)
        for _ in range(20):
            with Liar(self.agent) as liar:
                liar.attach()
                liar.join()
                liar.memory[:] = noise.randbytes(len(liar.memory))
                os.write(liar.agent_bell, struct.pack("<Q", 1))

    def test_bells_that_would_make_the_agent_wait(self):
        with Liar(self.agent) as liar:
            liar.attach()
            liar.join()
            for fd in (liar.agent_bell, liar.bell):
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
            try:
                os.write(liar.bell, struct.pack("<Q", HUGE - 1))  # an eventfd is full then
            except OSError:
                pass
            # More rings than any buffer holds, and none is read.
            for number in range(1, 5001):
                liar.words[liar.completion // 8 + 16] = 1  # asleep, it says
                liar.words[liar.completion // 8 + 8] = number - 1
                liar.enter(liar.entry(number=number))
                until = time.monotonic() + 30
                while liar.words[liar.completion // 8] < number:
                    self.assertLess(time.monotonic(), until, f"the run loop waits at op {number}")
                    os.sched_yield()

    def test_going_in_mid_op(self):
        for _ in range(20):
            with Liar(self.agent) as liar:
                liar.attach(data=16 << 20)
                for rank in range(8):
                    liar.send(join(group=liar.name, rank=rank, ranks=8, request=rank))
                got = 0
                while got < 16:
                    packet = liar.receive()
                    got += 1
                    if packet[6] == JOIN_REPLY:
                        liar.group, = struct.unpack_from("<H", packet, 12)
                size = 1 << 20
                liar.enter(*[liar.entry(number=1, count=size // 4, rank=r, in_offset=r * size, out_offset=r * size)
                             for r in range(8)])

    def test_a_thousand_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
        for path, kind in ((self.agent.socket + ".session", socket.SOCK_SEQPACKET),
                           (self.agent.socket, socket.SOCK_STREAM)):
            held = []
            for _ in range(1000):
                one = socket.socket(socket.AF_UNIX, kind)
                one.connect(path)
                held.append(one)
            # All are still there and say nothing; who comes now is served all the same.
            done = self.agent.ctl("allreduce", "--input", *gradients(8))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(self.agent.ctl("status").returncode, 0)
            for one in held:
                one.close()

    def test_a_client_that_reads_nothing(self):
        with Liar(self.agent) as liar:
            liar.attach()
            for i in range(20000):
                try:
                    liar.socket.send(join(group=b"full", ranks=0, request=i))
                except OSError:
                    return  # sent away
        self.fail("answers without end are kept for it")


class FewDescriptors(unittest.TestCase):
    def test_an_agent_without_descriptors_serves_who_is_there(self):
        with Agent("configs/lab/mesh-4gpu.toml", descriptors=64) as agent:
            first = Liar(agent).attach()
            first.join()
            others = []
            for _ in range(100):
                one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                one.connect(agent.socket + ".session")
                others.append(one)
            first.enter(first.entry())
            self.assertEqual(first.statuses(1), [OK])
            used = [cpu_seconds(agent.process.pid)]
            select.select([], [], [], 2)
            used.append(cpu_seconds(agent.process.pid))
            self.assertLess(used[1] - used[0], 1.5, "it asks for descriptors without a pause")
            for one in others:
                one.close()
            first.close()
            agent.wait_until(["status"], lambda s: s["clients"] == 0)
            self.assertEqual(agent.end(), 0)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def libc_fallocate(fd, mode, begin, length):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, mode, ctypes.c_long(begin), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


if __name__ == "__main__":
    unittest.main()
