#pragma once
#include <vector>
#include "base/point.hpp"

namespace geo {

template <typename T>
class Shape : public Base {
    int hidden_ = 0;
public:
    explicit Shape(std::string name) : name_(std::move(name)) {}
    virtual ~Shape() = default;
    virtual double area() const = 0;
    static constexpr int sides = 3;
    bool operator==(const Shape& other) const;
    enum class Kind { Round, Flat };
protected:
    std::string name_;
private:
    void secret();
};

struct Point { double x, y; };
using Points = std::vector<Point>;

template <typename T> T max(T a, T b) { return a > b ? a : b; }

namespace detail { inline int helper() { return 1; } }
namespace { int invisible(); }
}

double geo::Shape<int>::area() const { return 0; }
extern "C" int c_entry(void);
