// dlib's krls on the walk: processor seconds per row with a full dictionary, weights current after every row.
//
//     krls DIRECTORY SIZE WARM ROWS GAMMA

#include <dlib/svm.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr long dim = 4;
using Sample = dlib::matrix<double, dim, 1>;
using Kernel = dlib::radial_basis_kernel<Sample>;

std::vector<double> numbers(const std::string& path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
        std::cerr << path << " cannot be read\n";
        std::exit(1);
    }
    std::vector<double> out(static_cast<size_t>(file.tellg()) / sizeof(double));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(double)));
    return out;
}

double spent() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::cerr << "krls DIRECTORY SIZE WARM ROWS GAMMA\n";
        return 2;
    }
    const std::string directory = argv[1];
    const auto size = std::stoul(argv[2]), warm = std::stoul(argv[3]), rows = std::stoul(argv[4]);
    const auto states = numbers(directory + "/walk-4.f64"), rewards = numbers(directory + "/reward-4.f64");
    // A tolerance that everything exceeds: the dictionary fills, then the least useful element makes room or the row does not
    // enter it.
    dlib::krls<Kernel> learner(Kernel(std::stod(argv[5])), 1e-6, size);
    const auto train = [&](size_t row) {
        Sample sample;
        for (long d = 0; d < dim; ++d) sample(d) = states[row * dim + static_cast<size_t>(d)];
        learner.train(sample, rewards[row]);
    };
    for (size_t row = 0; row < warm; ++row) train(row);
    if (learner.dictionary_size() != size) {
        std::cerr << "the dictionary has " << learner.dictionary_size() << " elements\n";
        return 1;
    }
    const double before = spent();
    for (size_t row = warm; row < warm + rows; ++row) train(row);
    std::printf("%e\n", (spent() - before) / static_cast<double>(rows));
}
