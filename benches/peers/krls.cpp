// dlib's krls on the walk: processor seconds per row with a full dictionary, weights current after every row.
//
//     krls DIRECTORY SIZE WARM ROWS GAMMA

#include <dlib/svm.h>

#include <cmath>
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
    const Kernel kernel(std::stod(argv[5]));
    const auto train = [&](dlib::krls<Kernel>& learner, size_t row) {
        Sample sample;
        for (long d = 0; d < dim; ++d) sample(d) = states[row * dim + static_cast<size_t>(d)];
        learner.train(sample, rewards[row]);
    };
    // At its largest dictionary krls replaces an element for each novel state, which takes far longer than a row otherwise does.
    // So the tolerance is sought at which the rows before the measurement fill the dictionary just so.
    double low = 1e-9, high = 1.0;
    for (int attempt = 0; attempt < 60; ++attempt) {
        const double tolerance = std::sqrt(low * high);
        dlib::krls<Kernel> learner(kernel, tolerance, 2 * size);
        for (size_t row = 0; row < warm && learner.dictionary_size() <= size; ++row) train(learner, row);
        if (learner.dictionary_size() > size) {
            low = tolerance;
            continue;
        }
        if (100 * learner.dictionary_size() < 97 * size) {
            high = tolerance;
            continue;
        }
        const double before = spent();
        for (size_t row = warm; row < warm + rows; ++row) train(learner, row);
        std::printf("%e\n", (spent() - before) / static_cast<double>(rows));
        return 0;
    }
    std::cerr << "no tolerance gives a dictionary of " << size << " elements\n";
    return 1;
}
