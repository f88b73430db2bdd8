// A robot in C++ that sends its experience to criticd: ZeroMQ through cppzmq, and as much MessagePack as a transition
// needs. Build it with `make`, and run it beside `criticd serve`:
//
//     ./sender [ENDPOINT [STEPS [STREAM]]]        tcp://127.0.0.1:5750, 2000 steps, stream "cpp"
//
// proto/README.md says what else a message may hold. No answer comes back: the daemon publishes the rows that it refuses as
// `event.rejected`, with stream, session, code and reason, and `criticd status` counts them.

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <zmq.hpp>

// MessagePack, written by hand: maps, texts, whole numbers, floats, flags. Numbers are big-endian.
class Packer {
public:
    std::string bytes;

    void map(std::uint16_t pairs) { head(0xde, pairs, 2); }
    void array(std::uint16_t elements) { head(0xdc, elements, 2); }
    void add(std::uint64_t value) { head(0xcf, value, 8); }
    void add(bool flag) { bytes += flag ? '\xc3' : '\xc2'; }
    void add(double value) {
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        head(0xcb, bits, 8);
    }
    void add(const std::string& text) {
        head(0xda, text.size(), 2);
        bytes += text;
    }
    template <std::size_t D> void add(const std::array<double, D>& vector) {
        array(D);
        for (double value : vector) add(value);
    }
    // A key and its value. The key is made a string here, so that no literal is taken for a flag.
    template <class T> void pair(const char* key, const T& value) {
        add(std::string(key));
        add(value);
    }

private:
    void head(unsigned char type, std::uint64_t number, int width) {
        bytes += static_cast<char>(type);
        for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
    }
};

using State = std::array<double, 2>;  // position, speed

// Sends rows of one stream. It never waits: what finds the queue full is dropped and counted.
class Sender {
public:
    Sender(const std::string& endpoint, std::string stream)
        : socket(context, zmq::socket_type::push), stream(std::move(stream)), session(new_session()) {
        socket.set(zmq::sockopt::sndhwm, 10000);   // rows that may wait while the daemon is away
        socket.set(zmq::sockopt::linger, 10000);   // milliseconds that the end of the program may wait for it
        socket.connect(endpoint);
    }

    void send(const State& state, double reward, const State& next_state, bool terminated, bool truncated) {
        Packer row;
        row.map(9);
        row.pair("v", std::uint64_t{1});
        row.pair("stream", stream);
        row.pair("session", session);
        row.pair("seq", seq++);  // a row that is dropped leaves a gap, by which the daemon knows of it
        row.pair("state", state);
        row.pair("reward", reward);
        row.pair("next_state", next_state);
        row.pair("terminated", terminated);  // nothing of value can follow
        row.pair("truncated", truncated);    // merely stopped: next_state keeps its value
        if (!socket.send(zmq::buffer(row.bytes), zmq::send_flags::dontwait)) ++dropped;
    }

    std::uint64_t seq = 0, dropped = 0;

private:
    // A program that starts anew is a new session of its stream, whose rows are numbered from 0.
    static std::string new_session() {
        return "cpp-" + std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
    }

    zmq::context_t context;
    zmq::socket_t socket;
    std::string stream, session;
};

int main(int count, char** arguments) {
    const std::string endpoint = count > 1 ? arguments[1] : "tcp://127.0.0.1:5750";
    const long steps = count > 2 ? std::stol(arguments[2]) : 2000;
    Sender sender(endpoint, count > 3 ? arguments[3] : "cpp");

    // Your robot instead: a spring that is pushed now and then, and set up anew every 200 steps.
    State state{1.0, 0.0};
    for (long step = 0; step < steps; ++step) {
        const double push = step % 7 == 0 ? std::sin(static_cast<double>(step)) : 0.0;
        const double speed = 0.98 * state[1] - 0.1 * state[0] + 0.2 * push;
        const State next{state[0] + 0.1 * speed, speed};
        const bool truncated = step % 200 == 199;
        sender.send(state, -state[0] * state[0], next, false, truncated);
        state = truncated ? State{std::cos(static_cast<double>(step)), 0.0} : next;
    }
    std::cout << sender.seq - sender.dropped << " rows sent, " << sender.dropped << " dropped\n";
}
