import Foundation
import struct UIKit.CGRect
import Alamofire
@testable import Engine

public let limit: Int = 10
var hidden = 1

public protocol Playing: AnyObject {
    var name: String { get }
    func play(at time: Double) -> Bool
}

public final class Player<T>: NSObject, Playing {
    public var name: String = ""
    private let secret = 1
    public init(name: String) { self.name = name }
    public func play(at time: Double) -> Bool { return true }
    fileprivate func inner() {}
}

struct Point { let x: Double; var y = 0.0 }
enum Mode { case fast, slow(Int) }
extension Player { func stop() {} }
typealias Handler = (Int) -> Void
func helper<T: Equatable>(_ a: T, in b: [T]) async throws -> Int { 1 }
